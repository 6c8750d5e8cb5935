import assert from "node:assert/strict";
import { test } from "node:test";
import { cellByKey, rowOf } from "../../../nbtools/widgets/static/grid/keys.js";

const here = { row: 50, column: 2 };
const last = { row: 99, column: 4 };
/** @type {(key: string, isFar?: boolean) => [number, number] | undefined} */
const target = (key, isFar = false) =>
  cellByKey(/** @type {KeyboardEvent} */ ({ key, ctrlKey: isFar, metaKey: false }), here, last, 10);

test("keys move by a cell, by a page, and to the ends", () => {
  assert.deepEqual(target("ArrowDown"), [51, 2]);
  assert.deepEqual(target("ArrowUp", true), [0, 2]);
  assert.deepEqual(target("ArrowRight", true), [50, 4]);
  assert.deepEqual(target("PageDown"), [60, 2]);
  assert.deepEqual(target("PageUp"), [40, 2]);
  assert.deepEqual(target("Home"), [50, 0]);
  assert.deepEqual(target("End", true), [99, 4]);
  assert.equal(target("x"), undefined);
});

test("a row is typed with or without marks between its digits, and what is not a row is NaN", () => {
  for (const text of ["1234567", "1,234,567", "1 234 567", "1_234_567", "1'234'567", " 1234567 "]) {
    assert.equal(rowOf(text), 1_234_567);
  }
  assert.equal(rowOf("1e3"), 1_000);
  for (const text of ["", "abc", "-5", "0", "1.5", ",5"]) assert.equal(rowOf(text), NaN, text);
});
