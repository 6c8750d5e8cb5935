// The form of a column's filter.
import { h, later, number } from "../shared.js";

/** @import { Column, Grid, Slot } from "./state.js" */
/**
 * What a form does with the grid that it stands above.
 * @typedef {object} FormDoor
 * @property {(menu: HTMLElement) => void} lay puts it below the header of its column
 * @property {() => void} close
 * @property {(grid: Grid, condition: { column: number, [detail: string]: unknown }) => Promise<void>} filterBy
 */

const BY_VALUE = ["is missing", "is there"];
const IN_ORDER = ["=", "≠", "<", "≤", ">", "≥", "between", ...BY_VALUE];
/** @type {Record<string, string[]>} */
const OPERATORS = {
  text: ["contains", "does not contain", "starts with", "=", "≠", ...BY_VALUE],
  bool: ["=", ...BY_VALUE],
  number: IN_ORDER,
  time: IN_ORDER,
};
/** What picks a value of a type, an example, and what values look like. @type {Record<string, string[]>} */
const PICKED = {
  date: ["date", "2024-12-31", "\\d{4}-\\d\\d?-\\d\\d?"],
  time: ["time", "23:59", "\\d\\d?:\\d\\d.*"],
  timestamp: ["datetime-local", "2024-12-31 23:59", "\\d{4}-\\d\\d?-\\d\\d?(?:[ T]\\d.*)?"],
};
const TYPED_MS = 250;

/**
 * Return a field for a value, and what stands in the form. Moments are typed as the table shows them: a field of the
 * browser for dates has an order of its own, and makes the year 40410 of 2024-04-10. It picks them by the mouse.
 * @param {Column} column
 * @param {string} label
 */
const valueField = ({ kind, type }, label) => {
  const [picks, example, pattern] = PICKED[type] ?? [];
  const inputmode = kind === "number" ? "decimal" : null;
  const typed = { type: "text", size: "16", inputmode, placeholder: example, title: example, pattern };
  const field = h("input", { ...typed, "aria-label": label });
  const max = picks === "date" ? "9999-12-31" : null;
  const name = `${label} from a calendar`;
  const picker = picks ? h("input", { type: picks, max, class: "picker", tabindex: "-1", "aria-label": name }) : null;
  picker?.addEventListener("input", () => {
    field.value = picker.value.replace("T", " ");
  });
  return { field, element: h("span", { class: "value" }, field, picker) };
};

/**
 * Return the fields that compare with a value, as they fit the type of a column.
 * @param {Column} column
 */
const comparison = (column) => {
  const { kind } = column;
  const operators = (OPERATORS[kind] ?? IN_ORDER).map((each) => h("option", {}, each));
  const operator = h("select", { "aria-label": "Comparison" }, ...operators);
  const [first, last] = ["Value", "Upper value"].map((label) => valueField(column, label));
  const show = () => {
    first.element.hidden = BY_VALUE.includes(operator.value);
    last.element.hidden = operator.value !== "between";
    // What is not seen is not asked for.
    for (const { field, element } of [first, last]) field.disabled = element.hidden;
  };
  operator.addEventListener("change", show);
  show();
  return { operator, value: first.field, to: last.field, elements: [operator, first.element, last.element] };
};

/**
 * Return the list of a column's values with their counts, each to be ticked; `look` shows those with a text in them.
 * @param {Grid} grid
 * @param {Slot} slot
 */
const valueList = (grid, { index }) => {
  /** @type {Set<string | null>} */
  const chosen = new Set();
  const list = h("div", { class: "values", role: "group", "aria-label": "Values" });
  const note = h("div", { class: "dim" });
  const asking = new AbortController();
  /** @param {[value: string | null, count: number, form: string | null]} entry */
  const line = ([value, count, form]) => {
    const box = h("input", { type: "checkbox", checked: chosen.has(value) });
    box.addEventListener("change", () => (box.checked ? chosen.add(value) : chosen.delete(value)));
    const text = value === null ? h("i", { class: "dim" }, "missing") : h("span", { dir: "auto" }, form || "(empty)");
    return h("label", {}, box, text, h("span", { class: "dim" }, number(count)));
  };
  /** @param {string} search */
  const look = async (search) => {
    note.textContent = "Counting…";
    try {
      const details = { column: index, search, rev: grid.state.rev };
      const answer = await grid.link.ask("values", details, { signal: asking.signal });
      if (!answer) return look(search); // the rows were arranged again, and are known by now
      list.replaceChildren(...answer.values.map(line));
      note.textContent = answer.note;
    } catch (error) {
      note.textContent = error.stopped ? "" : error.message;
    }
  };
  return { chosen, look, stop: () => asking.abort(), element: h("div", { class: "ticks" }, list, note) };
};

/**
 * Open the form of a column's filter.
 * @param {Grid} grid
 * @param {Slot} slot
 * @param {FormDoor} door
 */
export const filterForm = (grid, slot, { lay, close: closeForm, filterBy }) => {
  const column = grid.column(slot);
  const { operator, value, to, elements } = comparison(column);
  const values = valueList(grid, slot);
  const close = () => {
    values.stop();
    closeForm();
  };
  /** @param {Event} event */
  const onsubmit = async (event) => {
    event.preventDefault();
    close();
    const isByValue = BY_VALUE.includes(operator.value);
    if (values.chosen.size) await filterBy(grid, { column: slot.index, op: "in", values: [...values.chosen] });
    else if (value.value || isByValue || (column.kind === "text" && operator.value === "=")) {
      await filterBy(grid, { column: slot.index, op: operator.value, value: value.value, to: to.value });
    }
  };
  const submit = h("button", { type: "submit", class: "primary" }, "Filter");
  const cancel = h("button", { type: "button", onclick: close }, "Cancel");
  const title = h("div", { class: "wide" }, h("b", {}, column.name), h("span", { class: "dim" }, ` ${column.type}`));
  const fields = [title, ...elements, values.element, submit, cancel];
  const properties = { class: "menu form", popover: "manual", "aria-label": `Filter ${column.name}`, onsubmit };
  const menu = h("form", properties, ...fields);
  lay(menu);
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  const search = later(TYPED_MS, () => values.look(value.value));
  value.addEventListener("input", () => column.kind === "text" && search());
  values.look("");
  value.focus();
};
