// The language of a cell whose script is not Python, and what is said where two versions meet.
import assert from "node:assert";
import { test } from "node:test";
import { compareVersions } from "../../../nbtools/jupyter/labextension/static/format.js";
import { cellLanguage } from "../../../nbtools/jupyter/labextension/static/script_language.js";

test("the parser of a script reads blanks for the line of the magic, at the same places", () => {
  const text = "n << %%sql -o it's\nselect '1'";
  const input = {
    length: text.length,
    lineChunks: false,
    chunk: (/** @type {number} */ from) => text.slice(from, from + 3),
    read: (/** @type {number} */ from, /** @type {number} */ to) => text.slice(from, to),
  };
  const script = { data: "sql", parser: { createParse: (/** @type {any} */ read) => read, other: 1 } };
  const { data, parser } = /** @type {any} */ (cellLanguage(/** @type {any} */ (script)));
  const below = parser.createParse(input, [], []);
  assert.strictEqual(data, "sql");
  assert.strictEqual(parser.other, 1);
  assert.strictEqual(below.length, text.length);
  assert.strictEqual(below.read(0, text.length), `${" ".repeat(18)}\nselect '1'`);
  assert.deepStrictEqual([below.chunk(0), below.chunk(17), below.chunk(19)], ["   ", " \ns", "sel"]);
});

test("another version of the kernel's nbtools is said once, whatever asks", () => {
  /** @type {string[]} */
  const sentences = [];
  const notification = { info: (/** @type {string} */ text) => sentences.push(text) };
  for (const version of [undefined, "0.1.0", "0.0.9", "0.0.9", "0.2.0"]) compareVersions(version, notification);
  assert.deepStrictEqual(sentences, ["The kernel has nbtools 0.0.9, JupyterLab 0.1.0: install the same for both."]);
});
