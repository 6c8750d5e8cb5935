import assert from "node:assert/strict";
import { test } from "node:test";
import { few, later, number } from "../../../nbtools/widgets/static/shared.js";

test("short numbers are read at a glance", () => {
  assert.equal(number(1_234_567), "1,234,567");
  assert.deepEqual([few(200_000), few(100_000_000)], ["200K", "100M"]);
});

test("of many calls the last one runs", async () => {
  /** @type {number[]} */
  const calls = [];
  const call = later(5, (/** @type {number} */ each) => calls.push(each));
  for (const each of [1, 2, 3]) call(each);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(calls, [3]);
});
