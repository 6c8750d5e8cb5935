// Groups of the rows by up to three columns, what is computed of each, and a column whose values become columns.
import { h } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Column } from "../grid/state.js" */
/** @import { Model } from "../shared.js" */

const MOST_KEYS = 3;
const FUNCTIONS = ["count", "sum", "mean", "min", "max"];
const OF_NUMBERS = ["sum", "mean"];

/**
 * Return the columns that a measure can be of.
 * @param {Column[]} columns
 * @param {string} measure
 */
export const columnsFor = (columns, measure) =>
  columns.filter(({ kind }) => !OF_NUMBERS.includes(measure) || kind === "number").map(({ name }) => name);

/**
 * @param {string} label
 * @param {string} first what no choice is called
 */
const select = (label, first) => h("select", { "aria-label": label }, h("option", { value: "" }, first));

/**
 * @param {HTMLSelectElement} element
 * @param {string[]} names
 */
const renew = (element, names) => {
  const before = element.value;
  const [first] = element.options;
  element.replaceChildren(first, ...names.map((name) => h("option", { value: name }, name)));
  element.value = names.includes(before) ? before : "";
};

/**
 * @param {Model} model
 * @param {GridDoor} grid
 */
export const groupPanel = (model, grid) => {
  /** @returns {Column[]} */
  const columns = () => model.get("state").columns;
  const keys = Array.from({ length: MOST_KEYS }, (_, at) =>
    select(`Group by, column ${at + 1}`, at ? "and by…" : "group by…"),
  );
  const across = select("A column for each value of", "no columns across");
  const measures = h("span", { class: "measures" });
  const addMeasure = () => {
    const options = FUNCTIONS.map((each) => h("option", {}, each));
    const measure = h("select", { "aria-label": "What is computed" }, ...options);
    const column = select("Of the column", "of rows");
    const offer = () => renew(column, columnsFor(columns(), measure.value));
    const line = h("span", { class: "measure" }, measure, column);
    measure.addEventListener("change", offer);
    offer();
    measures.append(line);
  };
  const read = () =>
    [...measures.children].map((line) => {
      const [measure, column] = line.querySelectorAll("select");
      return [measure.value, column.value];
    });
  const go = async () => {
    const chosen = keys.map((each) => each.value).filter(Boolean);
    const request = { keys: chosen, measures: read(), across: across.value };
    await grid.change("group", request, "Grouping");
    if (!grid.error.childElementCount) grid.say("Grouped. Undo shows the rows again.");
  };
  const more = h("button", { onclick: addMeasure }, "Compute more");
  const button = h("button", { class: "primary", onclick: go }, "Group");
  const bar = h("div", { class: "bar" }, ...keys, across, measures, more, button);
  addMeasure();
  const offerColumns = () => {
    const names = columns().map(({ name }) => name);
    for (const each of [...keys, across]) renew(each, names);
    for (const line of measures.children) {
      const [measure, column] = line.querySelectorAll("select");
      renew(column, columnsFor(columns(), measure.value));
    }
  };
  /** @param {string} [column] to group by */
  const open = (column) => {
    offerColumns();
    if (column) keys[0].value = column;
    (column ? button : keys[0]).focus();
  };
  return { elements: [bar], open, renew: offerColumns };
};
