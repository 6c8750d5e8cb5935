import assert from "node:assert/strict";
import { test } from "node:test";
import { arranged, drawnText, guessedWidth, slotsBetween } from "../../../nbtools/widgets/static/grid/layout.js";
import { countOf } from "../../../nbtools/widgets/static/grid/state.js";

/** @type {import("../../../nbtools/widgets/static/grid/state.js").TableState} */
const state = {
  rows: 1_000,
  source: 1,
  whole: true,
  columns: ["a", "b", "c", "d"].map((name) => ({ name, type: "BIGINT", kind: "number" })),
  order: [],
  conditions: [],
  rev: 0,
  note: "",
  notes: [],
  shown: null,
  first: null,
};
const view = { wrap: false, pinned: ["c", "gone"], widths: { a: 50, b: 60, c: 70, d: 80 } };

test("pinned columns come first, and a pin without its column means nothing", () => {
  const slots = arranged(state, view);
  assert.deepEqual(
    slots.map(({ index, x, isPinned }) => [index, x, isPinned]),
    [
      [2, 0, true],
      [0, 70, false],
      [1, 120, false],
      [3, 180, false],
    ],
  );
  const some = arranged({ ...state, shown: [3, 1] }, view);
  assert.deepEqual(
    some.map(({ index, position }) => [index, position]),
    [
      [3, 0],
      [1, 1],
    ],
  );
});

test("columns in sight are those that overlap the room, and all that are pinned", () => {
  const slots = arranged(state, view);
  /** @type {(low: number, high: number) => number[]} */
  const between = (low, high) => slotsBetween(slots, low, high).map((each) => each.index);
  assert.deepEqual(between(70, 260), [2, 0, 1, 3]);
  assert.deepEqual(between(120, 180), [2, 1]);
  assert.deepEqual(between(119, 181), [2, 0, 1, 3]);
  assert.deepEqual(between(900, 1_000), [2]);
});

test("a width is guessed from the name and the kind, within bounds", () => {
  assert.equal(guessedWidth({ name: "id", type: "BIGINT", kind: "number" }), 112);
  assert.equal(guessedWidth({ name: "at", type: "DATE", kind: "time" }), 150);
  assert.equal(guessedWidth({ name: "x".repeat(99), type: "VARCHAR", kind: "text" }), 260);
});

test("of a number with more digits the short text is drawn", () => {
  assert.equal(drawnText(["5614.88", "5614.880000000001"]), "5614.88");
  assert.equal(drawnText("1234567890123456789012345678.0000000001"), "1234567890123456789012345678.0000000001");
  assert.equal(drawnText(null), null);
  assert.equal(drawnText(undefined), undefined);
});

test("the count says of how many, and what is not known yet", () => {
  assert.equal(countOf({ ...state, of: 2_000 }, 4), "1,000 of 2,000 rows × 4 columns");
  assert.equal(countOf({ ...state, rows: 1, note: "cut" }, 1), "1 row × 1 column · cut");
  assert.equal(countOf({ ...state, whole: false }, 4), "first 1,000 rows × 4 columns");
});
