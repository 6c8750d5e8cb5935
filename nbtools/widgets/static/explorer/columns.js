// The columns of an explorer: found by name, shown or hidden, and put into another order.
import { h } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Column, Slot } from "../grid/state.js" */
/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */
/** @typedef {{ name: string, type: string, isVisible: boolean }} Entry */

/**
 * Return the columns as they are shown, then those that are hidden.
 * @param {Column[]} columns
 * @param {number[] | null} visible
 * @returns {Entry[]}
 */
export const entriesOf = (columns, visible) => {
  const places = visible ?? columns.map((_, at) => at);
  const hidden = columns.map((_, at) => at).filter((at) => !places.includes(at));
  return [...places, ...hidden].map((at) => ({
    name: columns[at].name,
    type: columns[at].type,
    isVisible: places.includes(at),
  }));
};

/**
 * Return a list with one entry in another place.
 * @template T
 * @param {T[]} list
 * @param {number} at
 * @param {number} by
 */
export const moved = (list, at, by) => {
  const rest = list.filter((_, other) => other !== at);
  rest.splice(Math.max(0, Math.min(rest.length, at + by)), 0, list[at]);
  return rest;
};

/**
 * Show these columns.
 * @param {GridDoor} grid
 * @param {string[]} names
 */
const show = (grid, names) => grid.change("columns", { names }, "Showing columns");

/**
 * Hide one column.
 * @param {Model} model
 * @param {Link} _
 * @param {GridDoor} grid
 * @param {Slot} slot
 */
export const hide = async (model, _, grid, { index }) => {
  const { columns, shown: visible } = model.get("state");
  const names = entriesOf(columns, visible).filter((each) => each.isVisible);
  await show(
    grid,
    names.map((each) => each.name).filter((name) => name !== columns[index].name),
  );
  grid.say(`${columns[index].name} is hidden; Undo shows it again.`);
};

/**
 * Return the list of the columns, of which those with a text in their names are seen.
 * @param {Entry[]} first
 */
const columnList = (first) => {
  let entries = first;
  let text = "";
  const element = h("div", { class: "wide values columns", role: "group", "aria-label": "Columns" });
  const isFound = (/** @type {Entry} */ { name }) => name.toLowerCase().includes(text);
  /** @param {number} at @param {number} by */
  const move = (at, by) => {
    const { name } = entries[at];
    entries = moved(entries, at, by);
    draw();
    const again = element.querySelector(`[data-move="${by}"][data-name="${CSS.escape(name)}"]`);
    if (again instanceof HTMLElement) again.focus();
  };
  /** @param {Entry} entry @param {number} at */
  const line = (entry, at) => {
    const box = h("input", { type: "checkbox", checked: entry.isVisible });
    box.addEventListener("change", () => {
      entry.isVisible = box.checked;
    });
    const [up, down] = [-1, 1].map((by) => {
      const label = `Move ${entry.name} ${by < 0 ? "to the left" : "to the right"}`;
      const onclick = () => move(at, by);
      const properties = { type: "button", class: "plain", "data-move": String(by), "data-name": entry.name, onclick };
      return h("button", { ...properties, "aria-label": label }, by < 0 ? "↑" : "↓");
    });
    const words = [h("span", { dir: "auto" }, entry.name), h("span", { class: "dim" }, entry.type)];
    return h("div", { class: "entry" }, h("label", {}, box, ...words), up, down);
  };
  const draw = () => {
    element.replaceChildren(...entries.flatMap((entry, at) => (isFound(entry) ? [line(entry, at)] : [])));
  };
  /** @param {boolean} isVisible */
  const setAll = (isVisible) => {
    for (const each of entries.filter(isFound)) each.isVisible = isVisible;
    draw();
  };
  /** @param {string} wanted */
  const find = (wanted) => {
    text = wanted.trim().toLowerCase();
    draw();
  };
  draw();
  return { element, find, setAll, names: () => entries.filter((each) => each.isVisible).map((each) => each.name) };
};

/**
 * Open the list of the columns below the header of one.
 * @param {Model} model
 * @param {Link} _
 * @param {GridDoor} grid
 * @param {Slot} slot
 */
export const openForm = (model, _, grid, slot) => {
  const { columns, shown: visible } = model.get("state");
  const list = columnList(entriesOf(columns, visible));
  const search = h("input", { type: "search", "aria-label": "Find a column", placeholder: "Find a column" });
  const close = () => grid.closeForm();
  /** @param {Event} event */
  const onsubmit = async (event) => {
    event.preventDefault();
    const names = list.names();
    close();
    await show(grid, names);
    grid.say(`${names.length} of ${columns.length} columns are shown.`);
  };
  const submit = h("button", { type: "submit", class: "primary" }, "Apply");
  const all = h("button", { type: "button", onclick: () => list.setAll(true) }, "All");
  const none = h("button", { type: "button", onclick: () => list.setAll(false) }, "None");
  const cancel = h("button", { type: "button", onclick: close }, "Cancel");
  const properties = { class: "menu form", popover: "manual", "aria-label": "Columns", onsubmit };
  const form = h("form", properties, search, all, none, list.element, submit, cancel);
  search.addEventListener("input", () => list.find(search.value));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  grid.lay(slot, form);
  search.focus();
};
