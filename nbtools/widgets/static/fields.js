// Fields of a form, as nbtools.widgets.forms.fields describes them: a label, what it means, and a message at the field.
import { h } from "./shared.js";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {"text" | "lines" | "number" | "flag" | "choice" | "json"} kind
 * @property {any} value text, or a truth of a flag
 * @property {string} default
 * @property {string} help
 * @property {boolean} required
 * @property {string[]} choices
 */

/** @typedef {{ [name: string]: any }} Values by the names of fields */
/** @typedef {{ [name: string]: string }} Problems by the names of fields; "" is about all of them */
/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Control */

const LONG_JSON = 60;

/**
 * @param {string} text
 * @param {number} least
 */
const rowsFor = (text, least) => Math.min(12, Math.max(least, text.split("\n").length));

/**
 * Return the control of one field.
 * @param {Field} field
 * @param {string} id
 * @returns {Control}
 */
const controlOf = (field, id) => {
  const { name, kind, required, value, choices } = field;
  const described = { "aria-describedby": `${id}-help ${id}-wrong`, "aria-required": required ? "true" : null };
  const shared = { id, name, ...described };
  if (kind === "flag") return h("input", { ...shared, type: "checkbox" });
  if (kind === "choice") {
    const none = !required && h("option", { value: "" }, field.default ? `(${field.default})` : "(not given)");
    const options = choices.map((choice) => h("option", { value: choice }, choice.replace(/^"|"$/g, "")));
    return h("select", shared, none, ...options);
  }
  const typed = { ...shared, class: "mono", placeholder: field.default, spellcheck: "false" };
  if (kind === "lines") return h("textarea", { ...typed, rows: rowsFor(value, 4) });
  if (kind === "json" && value.length > LONG_JSON) return h("textarea", { ...typed, rows: rowsFor(value, 2) });
  const inputmode = kind === "number" ? "decimal" : null;
  return h("input", { ...typed, type: "text", inputmode, autocomplete: "off" });
};

/**
 * Return what a control holds.
 * @param {Control} control
 * @returns {string | boolean}
 */
const valueOf = (control) =>
  control instanceof HTMLInputElement && control.type === "checkbox" ? control.checked : control.value;

/**
 * Return the row of one field.
 * @param {Field} field
 * @param {Values} edited what differs from the field's own value; changes are entered there
 * @param {(edited: Values) => void} edit
 */
const rowOf = (field, edited, edit) => {
  const id = `nbt-${Math.random().toString(36).slice(2)}`;
  const control = controlOf(field, id);
  const wrong = h("div", { class: "wrong", id: `${id}-wrong`, role: "alert" });
  const value = field.name in edited ? edited[field.name] : field.value;
  if (field.kind === "flag") Object.assign(control, { checked: value });
  else control.value = value;
  const isChosen = field.kind === "flag" || field.kind === "choice";
  control.addEventListener(isChosen ? "change" : "input", () => {
    const now = valueOf(control);
    if (now === field.value) delete edited[field.name];
    else edited[field.name] = now;
    element.classList.toggle("is-edited", field.name in edited);
    edit(edited);
  });
  const element = h(
    "div",
    { class: `field ${field.name in edited ? "is-edited" : ""}` },
    h("label", { for: id }, field.name, field.required && h("span", { class: "dim" }, " (required)")),
    control,
    h("div", { class: "dim help", id: `${id}-help` }, field.help),
    wrong,
  );
  return { element, control, wrong };
};

/**
 * Return a form: its element, what was edited by name, and messages at fields.
 * @param {Field[]} fields
 * @param {{ draft?: Values, edit?: (edited: Values) => void }} options `draft` is what was edited before
 */
export const fieldsForm = (fields, { draft = {}, edit = () => {} } = {}) => {
  const edited = { ...draft };
  const rows = new Map(fields.map((field) => [field.name, rowOf(field, edited, edit)]));
  const general = h("div", { class: "wrong", role: "alert" });
  const element = h("div", { class: "fields" }, general, ...[...rows.values()].map((row) => row.element));
  /** Return what is in all fields that have something. */
  const typed = () => {
    /** @type {Values} */
    const values = {};
    for (const field of fields) {
      const row = rows.get(field.name);
      const value = row && valueOf(row.control);
      if (field.name in edited || (value !== "" && value !== field.default)) values[field.name] = value;
    }
    return values;
  };
  /** @type {(problems?: Problems, isFocusing?: boolean) => void} */
  const showProblems = (problems = {}, isFocusing = false) => {
    general.textContent = problems[""] ?? "";
    for (const [name, { control, wrong }] of rows) {
      wrong.textContent = problems[name] ?? "";
      control.setAttribute("aria-invalid", name in problems ? "true" : "false");
    }
    if (isFocusing) rows.get(Object.keys(problems).find((name) => rows.has(name)) ?? "")?.control.focus();
  };
  return { element, edited: () => ({ ...edited }), typed, showProblems };
};
