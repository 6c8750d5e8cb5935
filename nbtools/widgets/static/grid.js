// The grid: any number of rows and columns, of which only those in sight are elements. Its parts are in `grid/`.
import { h } from "./shared.js";
import { change, showChips } from "./grid/filters.js";
import { listenToKeys } from "./grid/keys.js";
import { arrangeSlots, fitWidths, goToCell, resize } from "./grid/layout.js";
import { closeMenu, openMenu, placeMenu } from "./grid/menus.js";
import { listenToMouse } from "./grid/mouse.js";
import { addCells, draw } from "./grid/paint.js";
import { waitForProfile } from "./grid/profiles.js";
import { countOf, Grid } from "./grid/state.js";

/** @import { Link } from "./link.js" */
/** @import { Model } from "./shared.js" */
/** @import { Item } from "./grid/menus.js" */
/** @import { Facts, Slot } from "./grid/state.js" */

/** @param {Grid} grid */
const wrapButton = (grid) => {
  const onclick = () => {
    grid.view.wrap = !grid.view.wrap;
    button.ariaPressed = String(grid.view.wrap);
    grid.saveView();
    resize(grid);
  };
  const button = h("button", { "aria-pressed": String(grid.view.wrap), class: "wrap", onclick }, "Wrap");
  return button;
};

/**
 * Forget what belongs to rows that are gone.
 * @param {Grid} grid
 */
const startOver = (grid) => {
  const { before, state } = grid;
  /** @type {(...names: (keyof typeof state)[]) => boolean} */
  const isSame = (...names) => names.every((name) => JSON.stringify(state[name]) === JSON.stringify(before[name]));
  grid.isFinishing = false;
  grid.cells.clear();
  grid.profiling?.stop.abort();
  // The same rows in another order have the same profiles.
  if (isSame("order") || !isSame("source", "rows", "columns", "conditions")) grid.profiles.clear();
  grid.before = state;
  grid.top = 0;
  grid.active = { row: grid.active.row < 0 ? -1 : 0, column: grid.active.column };
  grid.anchor = null;
};

/**
 * Show the state as the kernel's side has it now. The first page comes along, and is seen without a question.
 * @param {Grid} grid
 * @param {GridOptions["keepWords"]} keepWords
 */
const update = (grid, keepWords) => {
  const { state, parts } = grid;
  if (state.rev !== grid.before.rev) startOver(grid);
  if (state.first) {
    const { columns, rows } = state.first;
    addCells(grid, 0, columns, rows.slice(0, state.rows));
    fitWidths(grid, rows, columns);
  }
  parts.title.textContent = grid.model.get("title");
  arrangeSlots(grid);
  parts.count.textContent = parts.count.title = countOf(state, grid.slots.length);
  parts.count.classList.toggle("long", parts.count.title.length > 60); // letters, with what differs
  parts.viewport.ariaRowCount = String(state.whole ? state.rows + 1 : -1);
  grid.root.classList.toggle("few", grid.isFew);
  showChips(grid);
  showNotes(grid, keepWords);
  resize(grid);
};

/**
 * Say below the rows what was done to the source's text to read it.
 * @param {Grid} grid
 * @param {GridOptions["keepWords"]} keepWords
 */
const showNotes = ({ parts, state }, keepWords) => {
  const notes = state.notes.map(({ text, words }) => {
    const onclick = () => keepWords?.();
    const keep = keepWords && words && h("button", { class: "keep", onclick }, "Keep them as text");
    return h("span", {}, text, keep ? " " : null, keep || null);
  });
  parts.notes.hidden = !notes.length;
  parts.notes.replaceChildren(...notes);
};

/**
 * What the widgets around a grid may do with it.
 * @typedef {object} GridDoor
 * @property {HTMLElement} bar
 * @property {HTMLElement} title
 * @property {HTMLElement} error
 * @property {(name: string, details: object, label: string) => Promise<any>} change
 * @property {() => void} focus
 * @property {(index: number) => Promise<Facts | undefined>} facts the profile of a column
 * @property {(slot: Slot, form: HTMLElement) => void} lay puts a form below the header of a column
 * @property {() => void} closeForm
 * @property {(row: number) => void} goTo
 * @property {(text: string) => void} say tells a screen reader
 */

/**
 * What the widget around a grid adds to it.
 * @typedef {object} GridOptions
 * @property {(slot: Slot) => Item[]} [more] items of a column's menu
 * @property {(row: number) => unknown} [openRow] shows a row in full
 * @property {() => unknown} [keepWords] reads words that were read as missing as the text that they are
 */

/**
 * Put a grid into an element.
 * @param {HTMLElement} root
 * @param {Model} model
 * @param {Link} link
 * @param {AbortSignal | undefined} signal aborts when the view is removed
 * @param {GridOptions} options
 * @returns {GridDoor}
 */
export const createGrid = (root, model, link, signal, { more = () => [], keepWords, openRow } = {}) => {
  root.classList.add("grid");
  const grid = new Grid(root, model, link, signal);
  const { parts } = grid;
  grid.draw = () => draw(grid);
  grid.openRow = openRow;
  const grow = h("span", { class: "grow" });
  const tools = h("span", { class: "tools" }, parts.columnInput, parts.rowInput, wrapButton(grid));
  const bar = h("div", { class: "bar main" }, parts.title, parts.count, parts.chips, grow, tools);
  root.append(bar, parts.work, parts.error, parts.viewport, parts.notes, parts.side, parts.live);
  /** @param {number} position */
  const openMenuAt = (position) => {
    const slot = grid.slots[position];
    if (slot) openMenu(grid, slot, more(slot));
  };
  listenToKeys(grid, openMenuAt);
  listenToMouse(grid, openMenuAt);

  const show = () => update(grid, keepWords);
  model.on("change:state", show);
  const watcher = new ResizeObserver(() => resize(grid));
  watcher.observe(root);
  signal?.addEventListener("abort", () => {
    watcher.disconnect();
    model.off("change:state", show);
    grid.busy?.abort();
    grid.profiling?.stop.abort();
  });
  show();
  return {
    bar,
    title: parts.title,
    error: parts.error,
    change: (name, details, label) => change(grid, name, details, label),
    focus: () => parts.viewport.focus(),
    facts: (index) => waitForProfile(grid, index),
    lay: (slot, form) => placeMenu(grid, slot, form),
    closeForm: () => closeMenu(grid),
    goTo: (row) => goToCell(grid, row, grid.active.column),
    say: (text) => grid.say(text),
  };
};
