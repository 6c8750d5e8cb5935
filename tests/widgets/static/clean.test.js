import assert from "node:assert/strict";
import test from "node:test";
import { dateExample, effectText, likelyStep } from "../../../nbtools/widgets/static/explorer/clean.js";

test("forms of dates are read as dates", () => {
  assert.equal(dateExample("%d.%m.%Y %H:%M"), "31.12.2024 18:30");
  assert.equal(dateExample("%b %d, %Y"), "Dec 31, 2024");
});

test("what a step does is said with the values that become missing", () => {
  const none = { there: 1200, lost: 0, changed: 7, examples: "", sql: "" };
  assert.equal(effectText({ op: "number" }, none), "All 1,200 values are read; none becomes missing.");
  assert.equal(effectText({ op: "trim" }, none), "7 values change.");
  const lost = { ...none, lost: 4, examples: '3 × "N/A", …' };
  assert.equal(effectText({ op: "number" }, lost), '4 of 1,200 values become missing: 3 × "N/A", ….');
  assert.equal(effectText({ op: "number" }, { ...none, there: 0 }), "There are no values.");
});

test("the step that fits most values is chosen", () => {
  /** @type {[string, number][]} */
  const few = [["x", 10]];
  assert.equal(likelyStep({ rows: 15, numbers: few, dates: [], words: few }), "number");
  assert.equal(likelyStep({ rows: 30, numbers: few, dates: few, words: few }), "missing");
  assert.equal(likelyStep({ rows: 15, numbers: [], dates: few, words: [] }), "date");
  assert.equal(likelyStep({ rows: 15, numbers: [], dates: [], words: [] }), "trim");
});
