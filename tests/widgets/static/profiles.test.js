import assert from "node:assert/strict";
import { test } from "node:test";
import { summaryLines } from "../../../nbtools/widgets/static/explorer/summary.js";
import { distinctOf, noteOf } from "../../../nbtools/widgets/static/grid/profiles.js";

/** @type {import("../../../nbtools/widgets/static/grid/state.js").Facts} */
const facts = {
  rows: 1_000,
  of: 100_000,
  missing: 5,
  distinct: 12,
  least: "a",
  greatest: null,
  bins: [],
  top: [["x", 400]],
};

test("the note tells what is missing, and of how many rows it is known", () => {
  assert.deepEqual(noteOf(facts, false), {
    note: "0.5 % missing, 1K of 100K",
    basis: "from 1,000 of 100,000 rows; a click reads all",
  });
  assert.equal(noteOf({ ...facts, missing: 400 }, true).note, "40 % missing, reading all");
  assert.deepEqual(noteOf({ ...facts, missing: 0, of: 1_000 }, false), { note: "", basis: "from all 1,000 rows" });
});

test("a share is 0 or 100 % of none or all alone", () => {
  assert.equal(noteOf({ ...facts, missing: 999, of: 1_000 }, false).note, ">99 % missing");
  assert.equal(noteOf({ ...facts, missing: 1_000, of: 1_000 }, false).note, "100 % missing");
  const shares = Object.fromEntries(summaryLines({ ...facts, rows: 100_000, missing: 99_999, top: [["x", 1]] }));
  assert.equal(shares.missing, "99,999 (>99.9 %)");
  assert.equal(shares.x, "1 (<0.1 %)");
  assert.equal(Object.fromEntries(summaryLines({ ...facts, missing: 0 })).missing, "0 (0.0 %)");
});

test("how many values differ is called about where it is estimated, and nothing without values", () => {
  assert.equal(distinctOf(facts), "12 different");
  assert.equal(distinctOf({ ...facts, distinct: 995 }), "all different");
  assert.equal(distinctOf({ ...facts, rows: 300_000 }), "≈ 12 different");
  assert.equal(distinctOf({ ...facts, missing: 1_000 }), "");
});

test("a summary has each fact, and each frequent value with its share", () => {
  assert.deepEqual(Object.fromEntries(summaryLines(facts)), {
    rows: "1,000 of 100,000, a sample",
    missing: "5 (0.5 %)",
    "distinct (approx.)": "12",
    min: "a",
    max: "",
    x: "400 (40.0 %)",
  });
});
