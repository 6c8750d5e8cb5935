// The form that cleans a column: each step changes the SQL, and says first what becomes of the values.
import { h, later, number, showError } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Column, Slot } from "../grid/state.js" */
/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */

/** @typedef {[name: string, count: number]} Counted */
/** @typedef {{ rows: number, numbers: Counted[], dates: Counted[], words: Counted[] }} Offer */
/** @typedef {{ op: string, [detail: string]: unknown }} Step */
/** @typedef {{ there: number, lost: number, changed: number, examples: string, sql: string }} Effect */
/** @typedef {{ elements: HTMLElement[], read: () => object }} Fields */

const TYPES = ["BIGINT", "DOUBLE", "DECIMAL(18,2)", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP"];
const NUMBERS = ["1234.5", "1,234.5", "1'234.5", "1234,5", "1.234,5", "1 234,5"];
const OF_TEXT = [
  ["number", "to number"],
  ["date", "to date"],
  ["missing", "words to missing"],
  ["trim", "trim blanks"],
  ["lower", "to lower case"],
  ["upper", "to upper case"],
];
const OF_ALL = [
  ["fill", "fill missing values"],
  ["cast", "to another type"],
  ["rename", "rename"],
];
const TYPED_MS = 250;
const SAMPLES = {
  "%Y": "2024",
  "%m": "12",
  "%d": "31",
  "%y": "24",
  "%b": "Dec",
  "%B": "December",
  "%H": "18",
  "%M": "30",
  "%S": "00",
  "%f": "25",
};

/**
 * Return a date in a form, as people read it.
 * @param {string} form such as "%d.%m.%Y"
 */
export const dateExample = (form) =>
  form.replace(/%[a-zA-Z]/g, (part) => SAMPLES[/** @type {keyof typeof SAMPLES} */ (part)] ?? part);

/**
 * Return what a step does, in words.
 * @param {Step} step
 * @param {Effect} effect
 */
export const effectText = ({ op }, { there, lost, changed, examples }) => {
  if (!there && op !== "fill") return "There are no values.";
  if (lost) return `${number(lost)} of ${number(there)} values become missing: ${examples}.`;
  const are = ["number", "date", "cast"].includes(op);
  return are ? `All ${number(there)} values are read; none becomes missing.` : `${number(changed)} values change.`;
};

/**
 * Return a list of boxes to tick, each with its count.
 * @param {string} label
 * @param {[string, number][]} entries
 * @param {(name: string) => string} text
 */
const ticks = (label, entries, text) => {
  const lines = entries.map(([name, count]) => {
    const box = h("input", { type: "checkbox", checked: true, value: name });
    return h("label", {}, box, h("span", {}, text(name)), h("span", { class: "dim" }, number(count)));
  });
  const element = h("div", { class: "ticks values", role: "group", "aria-label": label }, ...lines);
  const read = () =>
    /** @type {HTMLInputElement[]} */ ([...element.querySelectorAll("input:checked")]).map((each) => each.value);
  return { element, read };
};

/**
 * @param {string} label
 * @param {string[]} names
 * @param {string} first
 */
const choice = (label, names, first) => {
  const select = h("select", { "aria-label": label }, ...names.map((each) => h("option", {}, each)));
  select.value = first;
  return select;
};

/**
 * Return a list to tick, and a field for one that is not in it.
 * @param {string} name of what is read
 * @param {Counted[]} entries
 * @param {[label: string, other: string, placeholder: string]} labels
 * @param {(name: string) => string} text
 * @returns {Fields}
 */
const listFields = (name, entries, [label, other, placeholder], text) => {
  const list = ticks(label, entries, text);
  const field = h("input", { type: "text", size: "16", "aria-label": other, placeholder });
  return {
    elements: [list.element, field],
    read: () => ({ [name]: [...list.read(), ...(field.value.trim() ? [field.value.trim()] : [])] }),
  };
};

/**
 * @param {string} name of what is read
 * @param {string} label
 * @param {string} value
 * @returns {Fields}
 */
const textField = (name, label, value) => {
  const field = h("input", { type: "text", size: "16", "aria-label": label, value });
  return { elements: [field], read: () => ({ [name]: field.value }) };
};

/**
 * @param {string} name of what is read
 * @param {HTMLSelectElement} select
 * @returns {Fields}
 */
const choiceField = (name, select) => ({ elements: [select], read: () => ({ [name]: select.value }) });

/**
 * The fields of the operations that need some.
 * @type {Record<string, (column: Column, offer: Offer | null) => Fields>}
 */
const FIELDS = {
  number: (_, offer) =>
    choiceField("form", choice("Form of the numbers", NUMBERS, offer?.numbers[0]?.[0] ?? NUMBERS[0])),
  date: (_, offer) =>
    listFields("forms", offer?.dates ?? [], ["Forms of the dates", "Another form", "other: %d.%m.%Y"], dateExample),
  missing: (_, offer) =>
    listFields("words", offer?.words ?? [], ["Words", "Another word", "another word"], (word) => word),
  cast: () => choiceField("type", choice("Type", TYPES, "VARCHAR")),
  fill: () => textField("value", "Value instead of missing ones", ""),
  rename: ({ name }) => textField("name", "New name", name),
};

/**
 * @param {string} op
 * @param {Column} column
 * @param {Offer | null} offer
 * @returns {Fields}
 */
const fieldsOf = (op, column, offer) => FIELDS[op]?.(column, offer) ?? { elements: [], read: () => ({}) };

/**
 * Return the operation that fits what most values look like.
 * @param {Offer} offer
 */
export const likelyStep = ({ rows, numbers, dates, words }) => {
  if (2 * (numbers[0]?.[1] ?? 0) > rows) return "number";
  if (2 * dates.reduce((sum, each) => sum + each[1], 0) > rows) return "date";
  return words.length ? "missing" : "trim";
};

/**
 * Return whether a step says too little to be taken: no form, no word, no value.
 * @param {Step} step
 */
export const isOpen = ({ op, forms, words, value }) =>
  [forms, words].some((each) => Array.isArray(each) && !each.length) || (op === "fill" && !value);

/**
 * Say what a step will do, as soon as that is known.
 * @param {Link} link
 * @param {HTMLElement} element
 */
const effectLine = (link, element) => {
  /** @type {AbortController | null} */
  let asking = null;
  /** @param {number} column @param {Step} step */
  const look = async (column, step) => {
    asking?.abort();
    const mine = new AbortController();
    asking = mine;
    element.textContent = isOpen(step) ? "Choose or write one." : step.op === "rename" ? "" : "Counting…";
    if (isOpen(step) || step.op === "rename") return;
    try {
      const effect = await link.ask("effect", { column, step }, { signal: mine.signal });
      element.replaceChildren(effectText(step, effect), h("code", { class: "dim" }, effect.sql));
    } catch (error) {
      if (asking === mine && !error.stopped) showError(element, error);
    }
  };
  return { look, stop: () => asking?.abort() };
};

/**
 * Open the form below the header of a column.
 * @param {Model} model
 * @param {Link} link
 * @param {GridDoor} grid
 * @param {Slot} slot
 */
export const openForm = async (model, link, grid, slot) => {
  /** @type {Column} */
  const column = model.get("state").columns[slot.index];
  const isText = column.kind === "text";
  const entries = [...(isText ? OF_TEXT : []), ...OF_ALL];
  const op = h(
    "select",
    { "aria-label": "What to do" },
    ...entries.map(([value, text]) => h("option", { value }, text)),
  );
  const body = h("div", { class: "wide fields" });
  const effect = h("div", { class: "wide effect dim", role: "status" });
  const { look, stop } = effectLine(link, effect);
  /** @type {Offer | null} */
  let offer = null;
  let fields = fieldsOf("", column, offer);
  const step = () => ({ op: op.value, ...fields.read() });
  const show = () => {
    submit.disabled = isOpen(step());
    look(slot.index, step());
  };
  const renew = () => {
    fields = fieldsOf(op.value, column, offer);
    body.replaceChildren(...fields.elements);
    show();
  };
  const close = () => {
    stop();
    grid.closeForm();
  };
  /** @param {Event} event */
  const onsubmit = async (event) => {
    event.preventDefault();
    const wanted = step();
    close();
    const done = await grid.change("clean", { column: slot.index, step: wanted }, `Cleaning ${column.name}`);
    if (done) grid.say(`${column.name}: ${done.sql ? effectText(wanted, done) : "renamed."}`);
  };
  // Until the values were looked at, nobody knows what fits them.
  const submit = h("button", { type: "submit", class: "primary", disabled: isText }, "Apply");
  const cancel = h("button", { type: "button", onclick: close }, "Cancel");
  const title = h("div", { class: "wide" }, h("b", {}, column.name), h("span", { class: "dim" }, ` ${column.type}`));
  const properties = { class: "menu form clean", popover: "manual", "aria-label": `Clean ${column.name}`, onsubmit };
  const form = h("form", properties, title, op, body, effect, submit, cancel);
  op.addEventListener("change", renew);
  body.addEventListener("input", later(TYPED_MS, show));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  grid.lay(slot, form);
  op.focus();
  if (isText) {
    effect.textContent = "Looking at the values…";
    offer = await link.ask("offer", { column: slot.index }).catch(() => null);
    if (op.value !== entries[0][0] || !form.isConnected) return; // another was chosen meanwhile
    if (offer) op.value = likelyStep(offer);
  }
  renew();
};
