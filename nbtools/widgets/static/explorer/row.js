// One row in full: each value whole, what is nested as a tree, pictures as pictures.
import { h, number, put, showError } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */
/** @typedef {{ tree?: string, picture?: string }} Rich */
/** @typedef {Rich & { name: string, type: string, means: string, text: string | null }} Whole */

const MOST_OPEN = 20;
const DIGITS = "\u0001"; // before a number: the one of JavaScript has 15 digits, and no zeros at its end
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

/**
 * Return what JSON stands for, with texts in place of numbers.
 * @param {string} json
 */
export const parseTree = (json) =>
  JSON.parse(json.replace(TOKENS, (token) => (token[0] === '"' ? token : JSON.stringify(DIGITS + token))));

/**
 * Return how a single value is written.
 * @param {unknown} value
 */
export const leafText = (value) =>
  typeof value === "string" && value[0] === DIGITS ? value.slice(1) : JSON.stringify(value);

/**
 * Return the entries of a list or an object of JSON; null for a single value.
 * @param {unknown} value
 * @returns {[string, unknown][] | null}
 */
export const branches = (value) => (value !== null && typeof value === "object" ? Object.entries(value) : null);

/**
 * @param {string} name
 * @param {unknown} value
 * @returns {HTMLElement}
 */
const treeOf = (name, value) => {
  const parts = branches(value);
  const label = name && h("span", { class: "dim" }, `${name}: `);
  if (!parts) return h("div", { class: "leaf" }, label, h("span", { dir: "auto" }, leafText(value)));
  const count = Array.isArray(value) ? `[${parts.length}]` : `{${parts.length}}`;
  const details = h("details", { open: parts.length <= MOST_OPEN }, h("summary", {}, label, count));
  const fillIn = () => {
    if (details.open && details.childElementCount === 1) details.append(...parts.map((each) => treeOf(...each)));
  };
  details.addEventListener("toggle", fillIn);
  fillIn();
  return details;
};

/** @param {Whole} whole */
const valueOf = ({ name, text, tree, picture }) => {
  if (picture) return h("img", { src: picture, alt: `${name} of this row` });
  if (tree !== undefined) return h("div", { class: "tree mono" }, treeOf("", parseTree(tree)));
  if (text === null) return h("i", { class: "dim" }, "null");
  return h("div", { class: "text", dir: "auto" }, text);
};

/** @param {Whole} whole */
const headOf = ({ name, type, means }) =>
  h("th", { scope: "row" }, name, ...[type, means].map((text) => h("div", { class: "dim" }, text)));

/**
 * Show one row in full, with those before and behind it a click away.
 * @param {Model} model
 * @param {Link} link
 * @param {GridDoor} grid
 * @param {HTMLElement} element
 * @param {number} first the row
 */
export const showRow = async (model, link, grid, element, first) => {
  let row = first;
  const title = h("span", { class: "title" });
  const failure = h("div", {});
  const body = h("tbody", {});
  const find = h("input", { type: "search", size: "12", placeholder: "Find column", "aria-label": "Find column" });
  /** @type {Whole[]} */
  let wholes = [];
  const draw = () => {
    const text = find.value.trim().toLowerCase();
    const lines = wholes.filter((each) => each.name.toLowerCase().includes(text));
    const cells = lines.map((each) => h("tr", {}, headOf(each), h("td", {}, valueOf(each))));
    body.replaceChildren(...cells);
  };
  const look = async () => {
    const { rows } = model.get("state");
    row = Math.max(0, Math.min(rows - 1, row));
    title.textContent = `Row ${number(row + 1)} of ${number(rows)}`;
    before.disabled = row === 0;
    behind.disabled = row === rows - 1;
    showError(failure, null);
    try {
      wholes = await link.ask("row", { row });
    } catch (error) {
      showError(failure, error);
      return;
    }
    draw();
  };
  /** @param {number} by */
  const step = (by) => {
    row += by;
    grid.goTo(row);
    look();
  };
  const close = () => {
    element.hidden = true;
    grid.focus();
  };
  const copy = () => {
    const pairs = wholes.map(({ name, text, tree }) => [name, tree === undefined ? text : JSON.parse(tree)]);
    return put(JSON.stringify(Object.fromEntries(pairs), null, 2));
  };
  const before = h("button", { onclick: () => step(-1) }, "Before");
  const behind = h("button", { onclick: () => step(1) }, "Next");
  const copier = h("button", { onclick: copy }, "Copy as JSON");
  const closer = h("button", { onclick: close }, "Close");
  const bar = h("div", { class: "bar" }, title, before, behind, h("span", { class: "grow" }), find, copier, closer);
  find.addEventListener("input", draw);
  element.onkeydown = ({ key }) => {
    if (key === "Escape") close();
  };
  element.replaceChildren(bar, failure, h("table", { class: "whole" }, body));
  element.hidden = false;
  await look();
  (behind.disabled ? closer : behind).focus();
};
