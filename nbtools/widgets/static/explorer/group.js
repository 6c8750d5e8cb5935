// Groups of the rows by up to three columns, what is computed of each, and a column whose values become columns.
import { columnChoice, h } from "../shared.js";

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
 * @param {Model} model
 * @param {GridDoor} grid
 */
export const groupPanel = (model, grid) => {
  /** @returns {Column[]} */
  const columns = () => model.get("state").columns;
  const keys = Array.from({ length: MOST_KEYS }, (_, at) =>
    columnChoice(`Group by, column ${at + 1}`, at ? "and by…" : "group by…"),
  );
  const across = columnChoice("A column for each value of", "no columns across");
  /** @type {{ offer: () => void, read: () => string[] }[]} */
  const lines = [];
  const measures = h("span", { class: "measures" });
  const addMeasure = () => {
    const options = FUNCTIONS.map((each) => h("option", {}, each));
    const measure = h("select", { "aria-label": "What is computed" }, ...options);
    const column = columnChoice("Of the column", "of rows");
    const offer = () => column.offer(columnsFor(columns(), measure.value));
    measure.addEventListener("change", offer);
    offer();
    measures.append(h("span", { class: "measure" }, measure, column.element));
    lines.push({ offer, read: () => [measure.value, column.element.value] });
  };
  const go = async () => {
    const chosen = keys.map(({ element }) => element.value).filter(Boolean);
    const request = { keys: chosen, measures: lines.map(({ read }) => read()), across: across.element.value };
    await grid.change("group", request, "Grouping");
    if (grid.error.childElementCount) return;
    grid.say("Grouped. Undo shows the rows again.");
  };
  const more = h("button", { onclick: addMeasure }, "Compute more");
  const button = h("button", { class: "primary", onclick: go }, "Group");
  const elements = [...keys, across].map(({ element }) => element);
  const bar = h("div", { class: "bar" }, ...elements, measures, more, button);
  addMeasure();
  const offerColumns = () => {
    const names = columns().map(({ name }) => name);
    for (const { offer } of [...keys, across]) offer(names);
    for (const { offer } of lines) offer();
  };
  /** @param {string} [column] to group by */
  const open = (column) => {
    offerColumns();
    if (column) keys[0].choose(column);
    (column ? button : keys[0].element).focus();
  };
  return { elements: [bar], open, renew: offerColumns };
};
