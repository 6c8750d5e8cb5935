// Which parts of a cell are SQL or another language, and the place that an error points at.
import assert from "node:assert";
import { test } from "node:test";

import { partsOf, placeOf, sqlOf } from "../../../nbtools/jupyter/labextension/static/parts.js";

/** @param {string} text */
const words = (text) => partsOf(text).map(({ from, to, mime }) => [mime.replace(/.*\//, ""), text.slice(from, to)]);

test("the cell of a magic is in the magic's language, below its line", () => {
  assert.deepStrictEqual(words("%%sql -o n\nselect 1"), [["x-pgsql", "select 1"]]);
  assert.deepStrictEqual(words("rows << %%nbsql crm\nselect 1\n"), [["x-pgsql", "select 1\n"]]);
  assert.deepStrictEqual(words("%%code bash --timeout 3\nls"), [["x-sh", "ls"]]);
  assert.deepStrictEqual(words("%%code node\nlet a"), [["javascript", "let a"]]);
  for (const text of ["%%code python\nx = 1", "%%data_analyze a.csv\nx = 1", "%%sql", "select 1", ""]) {
    assert.deepStrictEqual(words(text), []);
  }
});

test("a line of SQL begins where the statement does", () => {
  assert.deepStrictEqual(words("a = 1\n  b = %sql --limit 3 select 'it''s'\nc = 2"), [["x-pgsql", "select 'it''s'"]]);
  assert.deepStrictEqual(words("%explore from 'a.csv'\n%sql -o x with t as (select 1) from t"), [
    ["x-pgsql", "from 'a.csv'"],
    ["x-pgsql", "with t as (select 1) from t"],
  ]);
  for (const text of ["%sql crm", "%explore sales.csv", "print('%sql select 1')"]) {
    assert.deepStrictEqual(words(text), []);
  }
});

test("only a cell of SQL is formatted", () => {
  assert.strictEqual(sqlOf("%%sql\nselect 1")?.from, 6);
  for (const text of ["%sql select 1", "%%code bash\nls", "x = 1"]) assert.strictEqual(sqlOf(text), null);
});

test("the place of an error is the words below which its carets stand", () => {
  /** @param {string} message @param {string} text */
  const at = (message, text) => {
    const range = placeOf(message, text);
    return range && [text.slice(range.from, range.to), text.slice(0, range.from).split("\n").length];
  };
  const text = "%%sql\nselect a\n  from t where a = 1\n  from t where a = 1";
  const pointer = "      from t where a = 1\n             ^^^^^";
  assert.deepStrictEqual(at(`\nline 2: no\n${pointer}`, text), ["where", 3]);
  assert.deepStrictEqual(at(`\nline 2: no\n${pointer.replace(/\^+/, "^")}`, text), ["where", 3]);
  assert.deepStrictEqual(at(`\nline 3: no\n${pointer}`, text), ["where", 4]);
  assert.strictEqual(at("\nline 2: no\n    elsewhere\n    ^", text), null);
  assert.strictEqual(at("\nno place", text), null);
  // Behind the end of the line nothing is left to be underlined but what is there.
  assert.deepStrictEqual(at("\nline 1: more\n    select a\n            ^^^", "%%sql\nselect a"), ["", 2]);
});
