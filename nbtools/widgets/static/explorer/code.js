// The SQL of what is shown, and the code that goes on with it in a cell.
import { h, hasMagics, insertCell, put, runByKey, showError } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */

const MOST_LINES = 8;
const LANGUAGES = [
  ["sql", "SQL"],
  ["pandas", "pandas"],
  ["polars", "polars"],
];

/**
 * Return the control that inserts a cell with the code of what is shown.
 * @param {HTMLElement} root
 * @param {Link} link
 * @param {() => GridDoor} grid
 */
const cellControls = (root, link, grid) => {
  const options = LANGUAGES.map(([value, label]) => h("option", { value }, label));
  const language = h("select", { "aria-label": "Language of the cell" }, ...options);
  const insert = async () => {
    try {
      insertCell(root, await link.ask("code", { language: language.value, magics: hasMagics() }));
    } catch (error) {
      showError(grid().error, error);
    }
  };
  const labels = { placeholder: "variable", "aria-label": "Name of a variable for the rows" };
  const name = h("input", { type: "text", size: "9", class: "assign", ...labels });
  const assign = async () => {
    const text = await grid().change("assign", { name: name.value }, "Taking the rows");
    status.textContent = text ?? "";
  };
  runByKey(name, assign);
  const status = h("span", { class: "dim", role: "status" });
  const button = h("button", { class: "insert", onclick: insert }, "Insert as cell");
  return [language, button, name, h("button", { class: "assign", onclick: assign }, "As a DataFrame"), status];
};

/**
 * Return the bar with the SQL, and what shows the SQL of now.
 * @param {HTMLElement} root
 * @param {Model} model
 * @param {Link} link
 * @param {HTMLSelectElement} connection
 * @param {() => GridDoor} grid
 */
export const codeBar = (root, model, link, connection, grid) => {
  const label = "SQL of what is shown";
  const area = h("textarea", { rows: "3", spellcheck: "false", "aria-label": label, class: "sql mono" });
  const showEdited = () => {
    undo.hidden = area.value === model.get("sql");
  };
  const discard = () => {
    area.value = model.get("sql");
    showEdited();
  };
  const query = async () => {
    await grid().change("query", { text: area.value, connection: connection.value }, "Running");
    showEdited();
  };
  const copy = async () => {
    await put(area.value);
    grid().say("SQL copied.");
  };
  const run = h("button", { class: "primary run", onclick: query }, "Run");
  const undo = h("button", { class: "undo", hidden: true, onclick: discard }, "Discard the change");
  const copier = h("button", { class: "copy", onclick: copy }, "Copy");
  area.addEventListener("input", showEdited);
  runByKey(area, query);
  const acts = h("div", { class: "acts" }, run, undo, copier, ...cellControls(root, link, grid));
  const show = () => {
    area.value = model.get("sql");
    area.rows = Math.min(area.value.split("\n").length, MOST_LINES);
    showEdited();
  };
  return { element: h("div", { class: "bar query", hidden: true }, area, acts), area, show };
};
