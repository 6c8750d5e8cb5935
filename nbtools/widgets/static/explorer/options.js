// How the files of a query are read: what holds, and what a person wants instead, which changes the SQL.
import { h, showError } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Link } from "../link.js" */

/** @typedef {string | number | boolean | string[] | null} Value */
/**
 * A file of a query, as Python describes it.
 * @typedef {object} FileOptions
 * @property {string} file
 * @property {Record<string, Value>} options that hold
 * @property {string[]} explicit options that the query itself says; the others were found
 * @property {string[]} encodings in which it may be
 * @property {string[]} sheets
 * @property {string} problem
 */

/** @type {[name: string, label: string, choices?: string[]][]} */
const FIELDS = [
  ["encoding", "Encoding", []],
  ["delim", "Delimiter", [...",;\t| "]],
  ["quote", "Quote", [..."\"'"]],
  ["comment", "Comment"],
  ["sheet", "Sheet", []],
  ["range", "Range"],
  ["header", "Header", ["true", "false"]],
  ["skip", "Lines to skip"],
  ["decimal_separator", "Decimal", [...".,"]],
  ["thousands", "Thousands", [...".,' "]],
  ["nullstr", "Missing words"],
];
/** @type {Record<string, string>} */
const WORDS = {
  ",": "comma",
  ";": "semicolon",
  "\t": "tab",
  "|": "bar",
  " ": "space",
  ".": "point",
  "'": "single quote",
  '"': "double quote",
  true: "yes",
  false: "no",
};

const HEADER_ROWS = ["2", "3", "4", "5", "6", "7", "8"]; // of a sheet

/**
 * Return what an option is as text.
 * @param {Value | undefined} value
 */
export const optionText = (value) => (Array.isArray(value) ? value.join(", ") : String(value ?? ""));

/**
 * Return what a typed text is as the value of an option; null leaves it to the file.
 * @param {string} name
 * @param {string} text
 * @returns {Value}
 */
export const optionValue = (name, text) => {
  if (text === "" || text === "automatic") return null;
  if (text === "true" || text === "false") return text === "true";
  if (name === "nullstr") return text.split(",").map((word) => word.trim());
  if (/^\d+$/.test(text) && ["skip", "header"].includes(name)) return Number(text);
  return text;
};

/**
 * @param {FileOptions} file
 * @param {typeof FIELDS[number]} field
 * @param {(value: Value) => void} change
 */
const control = ({ options, explicit, encodings, sheets }, [name, label, choices], change) => {
  const value = optionText(options[name]);
  const isWritten = explicit.includes(name);
  const listen = (/** @type {Event} */ { target }) => {
    const isField = target instanceof HTMLInputElement || target instanceof HTMLSelectElement;
    if (isField) change(optionValue(name, target.value));
  };
  const properties = { "aria-label": label, onchange: listen, class: isWritten ? "written" : null };
  if (!choices) return h("input", { ...properties, type: "text", value });
  const listed = name === "sheet" ? sheets : encodings;
  const rows = name === "header" && sheets.length ? HEADER_ROWS : [];
  const all = new Set([...(choices.length ? choices : listed), ...rows, ...(value ? [value] : [])]);
  const words = (/** @type {string} */ each) => WORDS[each] ?? (name === "header" ? `row ${each}` : each);
  const entries = [...all].map((each) => h("option", { value: each }, words(each)));
  const select = h("select", properties, h("option", { value: "automatic" }, "automatic"), ...entries);
  select.value = value || "automatic";
  return select;
};

/**
 * Return whether a file has an option: what could not be read has those that could mend that.
 * @param {FileOptions} file
 * @param {string} name
 */
const hasOption = ({ options, encodings, sheets }, name) =>
  name in options || (name === "encoding" && encodings.length > 0) || (name === "sheet" && sheets.length > 0);

/**
 * Show the options of the files that a query names.
 * @param {HTMLElement} element
 * @param {Link} link
 * @param {GridDoor} grid
 * @param {string} [text] of a query that could not be asked; of what is shown without it
 */
export const showOptions = async (element, link, grid, text) => {
  /** @type {FileOptions[]} */
  let files = [];
  try {
    files = await link.ask("options", { text });
  } catch (error) {
    showError(grid.error, error);
  }
  const lines = files.map((file, at) => {
    const rewrite = async (/** @type {string} */ name, /** @type {Value} */ value) => {
      await grid.change("rewrite", { text, at, changes: { [name]: value } }, "Reading it again");
      await showOptions(element, link, grid, grid.error.childElementCount ? text : undefined);
    };
    const fields = FIELDS.filter(([name]) => hasOption(file, name)).map((field) =>
      h(
        "label",
        {},
        h("span", { class: "dim" }, `${field[1]} `),
        control(file, field, (value) => rewrite(field[0], value)),
      ),
    );
    const title = h("span", { class: "title" }, file.file);
    const isSaid = grid.error.childElementCount > 0;
    const problem = file.problem && !isSaid && h("span", { class: "is-bad" }, file.problem);
    return h(
      "div",
      { class: "file", role: "group", "aria-label": `Options of ${file.file}` },
      title,
      ...fields,
      problem,
    );
  });
  element.replaceChildren(...lines);
  element.hidden = !lines.length;
};
