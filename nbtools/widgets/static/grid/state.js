// The state of a grid: one object, which the other files of this folder read and change.
import { h, number } from "../shared.js";

/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */

/**
 * A column, as Python describes it.
 * @typedef {object} Column
 * @property {string} name
 * @property {string} type of the source, such as "BIGINT"
 * @property {string} kind "number", "text", "time", "bool" or another
 * @property {string} [means] what a data dictionary says of it
 */

/**
 * The trait `state` of Python's `GridWidget`: which rows there are, and in which order.
 * @typedef {object} TableState
 * @property {number} rows
 * @property {number} [of] rows without the conditions
 * @property {number} source another source, with as many rows, has profiles of its own
 * @property {boolean} whole false while the first rows alone are read
 * @property {Column[]} columns
 * @property {[name: string, isDescending: boolean][]} order
 * @property {string[]} conditions
 * @property {number} rev counts arrangements: replies to an earlier one are thrown away
 * @property {string} note
 * @property {{ text: string, words: boolean }[]} notes what was done to the source's text to read it
 * @property {number[] | null} shown columns that are shown, null for all
 * @property {{ columns: number[], rows: Drawn[][] } | null} first the first page
 */

/**
 * What a column holds.
 * @typedef {object} Facts
 * @property {number} rows that were looked at
 * @property {number} of all rows
 * @property {number} missing
 * @property {number} distinct
 * @property {string | null} least
 * @property {string | null} greatest
 * @property {[low: unknown, high: unknown, size: number, label: string][]} bins
 * @property {[label: string, size: number][]} top
 * @property {string} [failed] why there is no profile
 */

/**
 * Where a column is drawn: `index` counts the columns of the source, `position` those that are shown.
 * @typedef {{ index: number, position: number, x: number, width: number, isPinned: boolean }} Slot
 */

/** @typedef {string | null | [text: string, whole: string]} Drawn a cell; and a number whole */
/** @typedef {{ row: number, column: number }} Cell row -1 is the header; the column is a position */
/** @typedef {{ wrap: boolean, pinned: string[], widths: Record<string, number> }} View what is saved with the widget */

// Chromium ends at 33 million pixels: above LONGEST a drag of the scroll bar goes to a share of the rows.
export const LONGEST = 8_000_000;
/** So many rows and columns are seen without much scrolling, and need no tools. */
export const FEW_ROWS = 12;
const FEW_COLUMNS = 24;
const HEAD = 76;
const LOW_HEAD = 36;
export const NARROWEST = 56;
export const WIDEST = 1_200;

/**
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/**
 * Make the elements: `viewport` scrolls an empty `sizer`; the `layer` that sticks to its corner is drawn again for each
 * position. The header comes first, as it is read.
 * @param {string} label
 */
const createParts = (label) => {
  const head = h("div", { class: "head", role: "rowgroup" });
  const body = h("div", { class: "body", role: "rowgroup" });
  const layer = h("div", { class: "layer", role: "presentation" }, head, body);
  const sizer = h("div", { class: "sizer", role: "presentation" }, layer);
  const grid = {
    role: "grid",
    tabindex: "0",
    "aria-multiselectable": "true",
    "aria-label": label,
    // JupyterLab opens its own menu else, whatever a page does with the event.
    "data-jp-suppress-context-menu": true,
  };
  const find = { type: "search", size: "12", placeholder: "Find column", "aria-label": "Find column", class: "find" };
  const row = { type: "text", inputmode: "numeric", size: "9", placeholder: "Go to row", class: "goto" };
  return {
    title: h("span", { class: "title" }),
    count: h("span", { class: "dim count" }),
    live: h("div", { class: "unseen", role: "status", "aria-live": "polite" }),
    rowInput: h("input", { ...row, "aria-label": "Go to row" }),
    columnInput: h("input", find),
    work: h("div", { class: "bar work", hidden: true }),
    error: h("div", { class: "errors" }),
    chips: h("span", { class: "chips" }),
    notes: h("div", { class: "bar notes dim", hidden: true }),
    side: h("div", { class: "side", hidden: true, role: "dialog", "aria-label": "Whole value" }),
    viewport: h("div", { class: "viewport", ...grid }, sizer),
    sizer,
    layer,
    head,
    body,
  };
};

export class Grid {
  /**
   * Texts by row and index of the column; what has not come yet is undefined.
   * @type {Map<number, Record<number, Drawn>>}
   */
  cells = new Map();
  /** @type {Map<number, Facts>} */
  profiles = new Map();

  // Pixels of the rows above, and of the unpinned columns to the left of what is in sight.
  top = 0;
  left = 0;
  // The viewport's own position as it was last set or heard of.
  scrollTop = 0;
  scrollLeft = 0;
  /** @type {Slot[]} */
  slots = [];
  /** Width of the column of row numbers. */
  gutter = 0;
  pinnedWidth = 0;
  allWidth = 0;
  /** Columns whose width was fitted to their first values. @type {Set<string>} */
  fitted = new Set();

  /** @type {Cell} */
  active = { row: 0, column: 0 };
  /** The other corner of the chosen rectangle. @type {Cell | null} */
  anchor = null;
  /** Bars of a profile that the mouse is drawn across. @type {{ index: number, from: number, to: number } | null} */
  brush = null;
  /** @type {HTMLElement | null} */
  menu = null;
  search = { text: "", at: -1 };

  /** Cells are asked for. */
  isAsking = false;
  /** All rows are being read, or were. */
  isFinishing = false;
  /** What changes the rows just now. @type {AbortController | null} */
  busy = null;
  /** The order that is asked for, until it is there. @type {TableState["order"] | null} */
  nextOrder = null;
  /** Ends what a button that is held would do once it is let go. @type {AbortController | null} */
  pressed = null;
  /**
   * The profile that is made just now; with its column where all rows are read for it.
   * @type {{ stop: AbortController, index?: number } | null}
   */
  profiling = null;

  /** Shows a row in full, where the widget around it does that. @type {((row: number) => unknown) | undefined} */
  openRow;

  frame = 0;
  /** Draws what is in sight; set by the code that puts the grid together. */
  draw = () => {};

  /**
   * @param {HTMLElement} root
   * @param {Model} model
   * @param {Link} link
   * @param {AbortSignal | undefined} signal aborts when the view is removed
   */
  constructor(root, model, link, signal) {
    this.root = root;
    this.model = model;
    this.link = link;
    this.signal = signal;
    this.parts = createParts(model.get("title") || "Table");
    this.id = `nbt-${Math.random().toString(36).slice(2)}`;
    /** @type {View} */
    this.view = { wrap: false, pinned: [], widths: {}, ...model.get("view") };
    /** The state before the last change of rows. @type {TableState} */
    this.before = model.get("state");
  }

  /** @returns {TableState} */
  get state() {
    return this.model.get("state");
  }

  /** Whether these are all rows, and so few, of few columns, that they are a plain table. */
  get isFew() {
    const { whole, rows, of, conditions, columns } = this.state;
    const isAll = whole && (of ?? rows) === rows && !conditions.length;
    return isAll && rows <= FEW_ROWS && columns.length <= FEW_COLUMNS;
  }

  /** Return the height of the header, in which few rows have no profiles. */
  get head() {
    return this.isFew ? LOW_HEAD : HEAD;
  }

  /** Draw in the next frame. */
  paint() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /** Save what a person arranged. */
  saveView() {
    this.model.set("view", { ...this.view });
    this.model.save_changes();
  }

  /**
   * Tell a screen reader.
   * @param {string} text
   */
  say(text) {
    this.parts.live.textContent = text;
  }

  /**
   * Return the column that is drawn in a slot.
   * @param {{ index: number }} slot
   */
  column(slot) {
    return this.state.columns[slot.index];
  }

  /**
   * Return how the rows are sorted by a column, as far as they are.
   * @param {string} name
   */
  orderOf(name) {
    return this.state.order.find((each) => each[0] === name);
  }

  /**
   * Return how the rows are sorted by a column once what was asked for is done: a second click comes before that.
   * @param {string} name
   */
  nextOrderOf(name) {
    return (this.nextOrder ?? this.state.order).find((each) => each[0] === name);
  }

  /** Return the chosen rectangle, both ends included; without one it is the active cell. */
  chosen() {
    const { active } = this;
    const anchor = this.anchor ?? active;
    return {
      top: Math.min(anchor.row, active.row),
      bottom: Math.max(anchor.row, active.row),
      left: Math.min(anchor.column, active.column),
      right: Math.max(anchor.column, active.column),
    };
  }
}

/**
 * Return how many rows and columns there are, in words.
 * @param {TableState} state
 * @param {number} columns that are shown
 */
export const countOf = (state, columns) => {
  const { rows, of, whole, note } = state;
  const all = of !== undefined && of !== rows ? ` of ${number(of)}` : "";
  const counted = whole ? number(rows) + all : `first ${number(rows)}`;
  const words = [
    counted,
    rows === 1 && !all ? "row" : "rows",
    "×",
    number(columns),
    columns === 1 ? "column" : "columns",
  ];
  return words.join(" ") + (note ? ` · ${note}` : "");
};
