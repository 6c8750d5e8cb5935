// Which parts of a cell are in a language of their own: pure functions of its text.

/** @typedef {{ from: number, to: number, mime: string, isCell: boolean }} Part */

const MIME = { sql: "text/x-pgsql", shell: "text/x-sh", javascript: "text/javascript" };
/** The languages of `%%code` that are not Python, which have magics of their own. @type {Record<string, string>} */
const LANGUAGES = {
  bash: MIME.shell,
  javascript: MIME.javascript,
  js: MIME.javascript,
  node: MIME.javascript,
  sh: MIME.shell,
};
/** The magics whose cell is a script of one language. @type {Record<string, string>} */
const MAGICS = { ...LANGUAGES, bigquery: MIME.sql, nbsql: MIME.sql, sql: MIME.sql };

const CELL = /^\s*(?:[\w.]+\s*<<\s*)?%%(\w+)[ \t]*([^\n]*)\n/;
const LINE = /^[ \t]*(?:[\w.]+\s*(?:=|<<)\s*)?%(?:sql|nbsql|explore)[ \t]+/gm;
const STATEMENT = /\b(?:select|from|with|values|pivot|unpivot|describe|summarize|show|explain|table)\b/i;

/**
 * Return the parts of a cell that Python's colours do not fit, in the order of the text.
 * @param {string} text
 * @returns {Part[]}
 */
export const partsOf = (text) => {
  const head = CELL.exec(text);
  if (head) {
    const [line, magic, options] = head;
    const mime = magic === "code" ? LANGUAGES[options.split(/\s/, 1)[0]] : MAGICS[magic];
    const [from, to] = [line.length, text.length];
    return mime && from < to ? [{ from, to, mime, isCell: true }] : [];
  }
  const parts = [];
  for (const { index, 0: start } of text.matchAll(LINE)) {
    const begin = index + start.length;
    const end = text.indexOf("\n", begin);
    const to = end < 0 ? text.length : end;
    const from = begin + text.slice(begin, to).search(STATEMENT);
    if (from >= begin) parts.push({ from, to, mime: MIME.sql, isCell: false });
  }
  return parts;
};

/**
 * Return the SQL of a cell, to be formatted: the part below the line of its magic; `null` where there is none.
 * @param {string} text
 * @returns {Part | null}
 */
export const sqlOf = (text) => {
  const [part] = partsOf(text);
  return part?.isCell && part.mime === MIME.sql ? part : null;
};

const POINTER = /\n( *)(\S.*)\n( *)(\^+)/;

/**
 * Return the place in a cell that an error points at with carets below a line of it; `null` when that is not there.
 * @param {string} message
 * @param {string} text
 * @returns {{ from: number, to: number } | null}
 */
export const placeOf = (message, text) => {
  const pointer = POINTER.exec(message);
  if (!pointer) return null;
  const [, indent, line, before, carets] = pointer;
  // Lines that stand twice are told apart by their number, counted in the cell's script.
  const number = /\bline (\d+)/.exec(message);
  let from = (CELL.exec(text)?.[0] ?? "").length;
  for (let skip = number ? Number(number[1]) - 1 : 0; skip > 0; skip -= 1) from = text.indexOf("\n", from) + 1;
  const start = [text.indexOf(line, from), text.indexOf(line)].find((each) => each >= 0);
  if (start === undefined) return null;
  const at = start + Math.max(0, before.length - indent.length);
  // One caret stands where a word begins.
  const word = carets.length === 1 ? (/^\w+/.exec(text.slice(at))?.[0].length ?? 1) : carets.length;
  return { from: Math.min(at, text.length), to: Math.min(at + word, text.length) };
};
