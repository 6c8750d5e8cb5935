// The keyboard: moving, choosing, copying, looking at a whole value, and the two fields that go somewhere.
import { h, number, put, showError } from "../shared.js";
import { change, toggleSort } from "./filters.js";
import { bodyHeight, goToCell, rowHeight, widen } from "./layout.js";

/** @import { Grid, Slot } from "./state.js" */

/**
 * Return the cell that a key leads to; undefined for a key that moves nothing.
 * @param {KeyboardEvent} event
 * @param {{ row: number, column: number }} active
 * @param {{ row: number, column: number }} last
 * @param {number} page rows
 * @returns {[row: number, column: number] | undefined}
 */
export const cellByKey = ({ key, ctrlKey, metaKey }, { row, column }, last, page) => {
  const isFar = ctrlKey || metaKey;
  /** @type {Record<string, [number, number]>} */
  const moves = {
    ArrowDown: [isFar ? last.row : row + 1, column],
    ArrowUp: [isFar ? 0 : row - 1, column],
    ArrowRight: [row, isFar ? last.column : column + 1],
    ArrowLeft: [row, isFar ? 0 : column - 1],
    PageDown: [Math.max(row, 0) + page, column],
    PageUp: [Math.max(row - page, 0), column],
    Home: [isFar ? 0 : row, 0],
    End: [isFar ? last.row : row, last.column],
  };
  return moves[key];
};

/**
 * Return a row as it is typed, with or without marks between its digits; NaN when it is not a number of a row.
 * @param {string} text
 */
export const rowOf = (text) => {
  const row = Number(text.trim().replace(/(?<=\d)[\s,_'’](?=\d)/g, "") || NaN);
  return Number.isInteger(row) && row > 0 ? row : NaN;
};

/**
 * Move by a key, or change a width; return whether it does that.
 * @param {Grid} grid
 * @param {KeyboardEvent} event
 */
const moveByKey = (grid, event) => {
  const slot = grid.slots[grid.active.column];
  const last = { row: grid.state.rows - 1, column: grid.slots.length - 1 };
  const page = Math.max(1, Math.floor(bodyHeight(grid) / rowHeight(grid)) - 1);
  const target = cellByKey(event, grid.active, last, page);
  const widening = { ArrowRight: 24, ArrowLeft: -24 }[event.key];
  if (event.altKey && slot && widening) widen(grid, slot, widening);
  else if (target) goToCell(grid, ...target, event.shiftKey);
  else return false;
  return true;
};

/**
 * Do what a key means; return whether it means something.
 * @param {Grid} grid
 * @param {KeyboardEvent} event
 * @param {(column: number) => void} openMenu
 */
const actByKey = (grid, { key, shiftKey, ctrlKey, metaKey }, openMenu) => {
  const { row, column } = grid.active;
  const slot = grid.slots[column];
  const isCommand = ctrlKey || metaKey;
  const last = { row: grid.state.rows - 1, column: grid.slots.length - 1 };
  if ((key === "F10" && shiftKey) || key === "ContextMenu") openMenu(column);
  else if (key === "Enter" && slot) enter(grid, row, slot);
  else if (key === "Escape" && grid.anchor) choose(grid, null, grid.active);
  else if (key === " ") grid.openRow?.(row);
  else if (isCommand && key === "a") choose(grid, { row: 0, column: 0 }, last);
  else if (isCommand && key === "c") copy(grid);
  else return false;
  return true;
};

/**
 * @param {Grid} grid
 * @param {number} row
 * @param {Slot} slot
 */
const enter = (grid, row, slot) => (row < 0 ? toggleSort(grid, slot.position) : openValue(grid, row, slot));

/**
 * @param {Grid} grid
 * @param {Grid["anchor"]} anchor
 * @param {Grid["active"]} active
 */
const choose = (grid, anchor, active) => {
  grid.anchor = anchor;
  grid.active = active;
  grid.paint();
};

/**
 * Copy what is chosen, as cells of a spreadsheet or as a table of Markdown.
 * @param {Grid} grid
 * @param {string} form
 */
export const copy = async (grid, form = "") => {
  const { top, bottom, left, right } = grid.chosen();
  const columns = grid.slots.slice(left, right + 1).map((each) => each.index);
  const heads = top < 0 || grid.anchor !== null;
  const box = { start: Math.max(top, 0), stop: bottom + 1, columns, heads, form };
  const answer = await change(grid, "copy", box, "Copying");
  if (!answer) return;
  await put(answer.text);
  grid.say(`${number(answer.cells)} cells copied.`);
};

/**
 * Show a value whole, below the grid.
 * @param {Grid} grid
 * @param {number} row
 * @param {Slot} slot
 */
export const openValue = async (grid, row, slot) => {
  const { side, error, viewport } = grid.parts;
  const { name, type } = grid.column(slot);
  let value;
  try {
    value = await grid.link.ask("whole", { row, column: slot.index, rev: grid.state.rev });
  } catch (problem) {
    showError(error, problem);
    return;
  }
  const close = () => {
    side.hidden = true;
    viewport.focus();
  };
  const closer = h("button", { onclick: close }, "Close");
  const copier = h("button", { onclick: () => put(value ?? "") }, "Copy");
  const title = h("span", { class: "title" }, `${name}, row ${number(row + 1)}`);
  const grow = h("span", { class: "grow" });
  side.replaceChildren(
    h("div", { class: "bar" }, title, h("span", { class: "dim" }, type), grow, copier, closer),
    h("pre", { dir: "auto", tabindex: "0" }, value === null ? "null" : value),
  );
  side.hidden = false;
  side.onkeydown = (event) => {
    if (event.key === "Escape") close();
  };
  closer.focus();
};

/** @param {Grid} grid */
const goToTypedRow = (grid) => {
  const { rowInput, viewport } = grid.parts;
  const row = rowOf(rowInput.value);
  const isWrong = Number.isNaN(row);
  rowInput.setAttribute("aria-invalid", String(isWrong));
  if (isWrong) {
    grid.say(`${rowInput.value} is not a row: rows are numbered from 1 to ${number(grid.state.rows)}.`);
    return;
  }
  goToCell(grid, row - 1, grid.active.column);
  viewport.focus();
  grid.say(`Row ${number(grid.active.row + 1)} of ${number(grid.state.rows)}.`);
};

/**
 * Go to the next column with a text in its name, or to the one before.
 * @param {Grid} grid
 * @param {boolean} isBackward
 */
const goToNamedColumn = (grid, isBackward) => {
  const { value } = grid.parts.columnInput;
  const text = value.trim().toLowerCase();
  const hits = grid.slots.filter((slot) => grid.column(slot).name.toLowerCase().includes(text));
  if (!text || !hits.length) {
    grid.say(text ? `No column has ${value} in its name.` : "");
    return;
  }
  const next = grid.search.at + (isBackward ? -1 : 1);
  const at = grid.search.text === text ? (next + hits.length) % hits.length : 0;
  grid.search = { text, at };
  goToCell(grid, grid.active.row, hits[at].position);
  grid.say(`${grid.column(hits[at]).name}: ${at + 1} of ${number(hits.length)}.`);
};

const GRID_KEYS = [
  "Arrows, Page Up, Page Down, Home, End: move; with Shift choose cells, with Ctrl to the end",
  "Enter: sort by a header, show a cell whole",
  "Space: the row in full, in an explorer",
  "Shift+F10: menu: filter, clean, group, hide, copy as Markdown",
  "Alt+Left, Alt+Right: narrower, wider",
  "Ctrl+A, Ctrl+C: choose all, copy",
];

/**
 * Listen to the keyboard.
 * @param {Grid} grid
 * @param {(column: number) => void} openMenu
 */
export const listenToKeys = (grid, openMenu) => {
  const { viewport, rowInput, columnInput } = grid.parts;
  grid.root.dataset.keys = GRID_KEYS.join("\n");
  viewport.addEventListener("keydown", (event) => {
    if (event.target !== viewport) return;
    if (!moveByKey(grid, event) && !actByKey(grid, event, openMenu)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  rowInput.addEventListener("keydown", ({ key }) => {
    if (key === "Enter") goToTypedRow(grid);
    else rowInput.removeAttribute("aria-invalid");
  });
  columnInput.addEventListener("keydown", ({ key, shiftKey }) => {
    if (key === "Enter") goToNamedColumn(grid, shiftKey);
  });
};
