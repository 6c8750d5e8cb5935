import assert from "node:assert/strict";
import { before, test } from "node:test";
import { answeredLine, approvalPanel } from "../../../nbtools/widgets/static/approval.js";

/** An element as far as the card needs one: what is appended to it, in its order. */
class Words {
  /** @type {unknown[]} */
  parts = [];
  append(/** @type {unknown[]} */ ...parts) {
    this.parts.push(...parts);
  }
  setAttribute() {}
  addEventListener() {}
  set textContent(/** @type {string} */ text) {
    this.parts = [text];
  }
  toString() {
    return this.parts.join("");
  }
}

before(() => {
  Object.assign(globalThis, { document: { createElement: () => new Words() } });
});

const proposal = {
  tool: "file_write",
  consequence: "may overwrite, delete or run things",
  caller: "the model",
  reason: "it declares no effects",
  fields: [],
  parts: [{ title: "a.txt changes", text: "-two\n+three" }],
};

test("a card says what a yes would do, who asks and why, and shows what would change", () => {
  const card = String(
    approvalPanel(proposal, { check: async () => ({ problems: {} }), decide: async () => ({ problems: {} }) }),
  );
  for (const words of [
    ...Object.values(proposal).filter((each) => typeof each === "string"),
    "a.txt changes",
    "+three",
  ]) {
    assert.ok(card.includes(words), `${words} is not in: ${card}`);
  }
});

test("what was answered still shows what was asked", () => {
  const line = String(answeredLine(proposal, "allowed once"));
  for (const words of ["file_write", "allowed once", "a.txt changes", "-two", "+three"]) {
    assert.ok(line.includes(words), words);
  }
});
