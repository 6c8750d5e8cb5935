// What kernels are told of notebooks, and that a proposal reaches its notebook alone and is one step of undo.
import assert from "node:assert";
import { test } from "node:test";

import { questionOf } from "../../../nbtools/jupyter/labextension/static/ask.js";
import { answerOf, applied, panelOf, placeOfCell } from "../../../nbtools/jupyter/labextension/static/cells.js";

/** @import { Panel } from "../../../nbtools/jupyter/labextension/static/cells.js" */

/**
 * Return a notebook with an undo of its own, as far as it is used.
 * @param {string} path
 * @param {string[]} sources
 * @returns {Panel & { undo: () => void, sources: () => string[] }}
 */
const notebook = (path, sources) => {
  let number = 0;
  /** @type {any[]} */
  const cells = [];
  /** @type {(() => void)[]} */
  const steps = [];
  /** @param {string} source */
  const cellOf = (source, kind = "code", id = `${path}-${(number += 1)}`) => {
    let text = source;
    const shared = {
      getSource: () => text,
      setSource: (/** @type {string} */ next) => {
        const before = text;
        steps.push(() => (text = before));
        text = next;
      },
    };
    const outputs = { length: 1, get: () => ({ toJSON: () => ({ output_type: "stream", text: ["out ", source] }) }) };
    return { id, type: kind, sharedModel: shared, outputs, executionCount: 3, ...shared };
  };
  cells.push(...sources.map((source) => cellOf(source)));
  const sharedModel = {
    cells,
    insertCell: (/** @type {number} */ at, /** @type {any} */ { source, cell_type: kind }) => {
      cells.splice(at, 0, cellOf(source, kind));
      steps.push(() => cells.splice(at, 1));
    },
    deleteCell: (/** @type {number} */ at) => {
      const [cell] = cells.splice(at, 1);
      steps.push(() => cells.splice(at, 0, cell));
    },
  };
  return {
    context: { path },
    content: { model: { cells, sharedModel } },
    undo: () => steps.pop()?.(),
    sources: () => cells.map((cell) => cell.getSource()),
  };
};

test("a kernel is told the notebooks, and the cells of the one that it names", () => {
  const panels = [notebook("a.ipynb", ["one", "two"]), notebook("b/a.ipynb", ["other"])];
  assert.deepStrictEqual(answerOf(panels, { ask: "who" }), { notebooks: ["a.ipynb", "b/a.ipynb"] });
  assert.deepStrictEqual(answerOf(panels, { ask: "read", notebook: "b/a.ipynb" }), {
    cells: [{ id: "b/a.ipynb-1", kind: "code", source: "other", ran: 3, outputs: ["out other"] }],
  });
  assert.match(answerOf(panels, { ask: "read", notebook: "c.ipynb" })?.problem ?? "", /c\.ipynb is no longer open/);
  assert.match(answerOf(panels, { ask: "propose", notebook: "c.ipynb" })?.problem ?? "", /no longer open/);
});

test("a proposal for a cell that changed or went is not done", () => {
  const panel = notebook("a.ipynb", ["one"]);
  /** @type {any} */
  const question = { ask: "propose", action: "replace", cell: "a.ipynb-1", before: "one", source: "two" };
  panel.content.model?.sharedModel.cells[0].setSource("changed");
  assert.strictEqual(applied(panel, question), null);
  assert.match(String(placeOfCell(panel, { ...question, cell: "gone" })), /no longer in the notebook/);
  assert.deepStrictEqual(panel.sources(), ["changed"]);
});

test("of 1,000 proposals of two clients none is in the wrong notebook, and one undo takes back each", () => {
  const panels = [notebook("a.ipynb", ["a first", "a last"]), notebook("b.ipynb", ["b first", "b last"])];
  const actions = /** @type {const} */ (["insert", "replace", "delete"]);
  for (let number = 0; number < 1000; number += 1) {
    const client = number % 2 ? "b" : "a";
    const cell = [`${client}.ipynb-1`, `${client}.ipynb-2`][(number >> 2) % 2];
    const action = actions[number % 3];
    const source = `${client} ${number}`;
    const before = action === "insert" ? null : cell.endsWith("1") ? `${client} first` : `${client} last`;
    const question = { ask: "propose", notebook: `${client}.ipynb`, action, cell, before, source, kind: "code" };
    const panel = panelOf(panels, question);
    assert.ok(panel);
    const [own, other] = [panel.sources(), panels[number % 2 ? 0 : 1].sources()];
    assert.notStrictEqual(applied(panel, question), null);
    assert.notDeepStrictEqual(panel.sources(), own);
    assert.ok(panel.sources().every((text) => text.startsWith(client)));
    assert.deepStrictEqual(panels[number % 2 ? 0 : 1].sources(), other);
    panel.undo();
    assert.deepStrictEqual(panel.sources(), own);
  }
});

test("a question about an error mentions nothing of the notebook by chance", () => {
  const text = questionOf("agent", "c1", { ename: "ValueError", evalue: "a@b\nmore" });
  assert.strictEqual(text.split("\n")[0], "%%agent");
  assert.ok(text.includes("(id c1) failed: ValueError: a at b\n"));
});
