import assert from "node:assert/strict";
import test from "node:test";
import { entriesOf, moved } from "../../../nbtools/widgets/static/explorer/columns.js";
import { columnsFor } from "../../../nbtools/widgets/static/explorer/group.js";
import { branches, leafText, parseTree } from "../../../nbtools/widgets/static/explorer/row.js";

const columns = [
  { name: "a", type: "BIGINT", kind: "number" },
  { name: "b", type: "VARCHAR", kind: "text" },
  { name: "c", type: "DATE", kind: "time" },
];

test("columns are listed as they are shown, and hidden ones behind them", () => {
  const names = (/** @type {number[] | null} */ visible) => entriesOf(columns, visible).map((each) => each.name);
  assert.deepEqual(names(null), ["a", "b", "c"]);
  assert.deepEqual(names([2, 0]), ["c", "a", "b"]);
  assert.equal(entriesOf(columns, [2, 0])[2].isVisible, false);
});

test("an entry moves as far as there is room", () => {
  assert.deepEqual(moved(["a", "b", "c"], 0, 1), ["b", "a", "c"]);
  assert.deepEqual(moved(["a", "b", "c"], 0, -1), ["a", "b", "c"]);
  assert.deepEqual(moved(["a", "b", "c"], 2, 1), ["a", "b", "c"]);
});

test("sums are of numbers, and the least and greatest of whatever has an order", () => {
  assert.deepEqual(columnsFor(columns, "sum"), ["a"]);
  assert.deepEqual(columnsFor(columns, "max"), ["a", "b", "c"]);
});

test("numbers of what is nested keep their digits", () => {
  const { a, l, t } = parseTree('{"a": 1.50, "l": [-1234567890123456789012, 1e-07, null, true], "t": "1.50, \\"2.50"}');
  const texts = [a, ...l, t].map(leafText);
  assert.deepEqual(texts, ["1.50", "-1234567890123456789012", "1e-07", "null", "true", '"1.50, \\"2.50"']);
});

test("what is nested has branches", () => {
  assert.deepEqual(branches({ a: 1 }), [["a", 1]]);
  assert.deepEqual(branches(["x"]), [["0", "x"]]);
  assert.equal(branches("x"), null);
  assert.equal(branches(null), null);
});
