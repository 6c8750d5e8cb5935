// Drawing what is in sight, and asking for what is missing of it.
import { h, number, showError, svg } from "../shared.js";
import { change } from "./filters.js";
import { bodyHeight, drawnText, fitWidths, resize, rowHeight, slotsInSight, xOf } from "./layout.js";
import { profileNext, sketch } from "./profiles.js";

/** @import { Drawn, Grid, Slot } from "./state.js" */

const MARGIN = 30;
// Sorted rows lie anywhere in the source, and each costs time.
const SORTED_MARGIN = 4;
const MOST_ROWS_KEPT = 4_000;
const FUNNEL = "M1 2h10L7.2 6.6v4l-2.4-1.2V6.6z";
const WITH_FUNNEL = 110;

/**
 * Add cells to those that are there.
 * @param {Grid} grid
 * @param {number} start the first row
 * @param {number[]} indexes of the columns
 * @param {Drawn[][]} rows
 */
export const addCells = (grid, start, indexes, rows) => {
  rows.forEach((texts, offset) => {
    const cells = grid.cells.get(start + offset) ?? {};
    texts.forEach((text, at) => {
      cells[indexes[at]] = text;
    });
    grid.cells.set(start + offset, cells);
  });
};

/**
 * @param {Grid} grid
 * @param {number} first
 * @param {number} last
 * @param {Slot[]} slots
 */
const isMissing = (grid, first, last, slots) => {
  for (let row = first; row < last; row++) {
    const cells = grid.cells.get(row);
    if (!cells || slots.some(({ index }) => cells[index] === undefined)) return true;
  }
  return false;
};

/**
 * @param {Grid} grid
 * @param {number} first
 * @param {number} last
 * @param {Slot[]} slots
 */
const fetchCells = async (grid, first, last, slots) => {
  if (grid.isAsking) return;
  grid.isAsking = true;
  const { rev, rows, order } = grid.state;
  const margin = order.length ? SORTED_MARGIN : MARGIN;
  const start = Math.max(0, first - margin);
  const indexes = slots.map((each) => each.index);
  try {
    const range = { start, stop: Math.min(rows, last + margin), columns: indexes, rev };
    const texts = await grid.link.ask("cells", range, { quick: true });
    if (texts && rev === grid.state.rev) {
      if (grid.cells.size > MOST_ROWS_KEPT) grid.cells.clear();
      addCells(grid, start, indexes, texts);
      if (fitWidths(grid, texts, indexes)) resize(grid);
    }
  } catch (error) {
    showError(grid.parts.error, error);
    if (!error.stopped || error.gone) return;
  } finally {
    grid.isAsking = false;
  }
  grid.paint();
};

/**
 * Read all rows, once the first ones are seen: that takes all cores.
 * @param {Grid} grid
 */
const finish = (grid) => {
  if (grid.isFinishing || grid.busy || grid.state.whole) return;
  grid.isFinishing = true;
  const begin = () => {
    if (grid.busy) grid.isFinishing = false;
    else if (!grid.signal?.aborted) change(grid, "finish", {}, "Reading all rows");
  };
  // After the browser has painted: a frame is drawn before this one ends.
  requestAnimationFrame(() => setTimeout(begin));
};

/**
 * @param {Grid} grid
 * @param {Slot} slot
 */
const style = (grid, slot) => `left:${xOf(grid, slot)}px;width:${slot.width}px`;

/**
 * Return what a cell is: by its value, and by where it is.
 * @param {Grid} grid
 * @param {{ slot: Slot, text: string | null | undefined, isChosen: boolean, isActive: boolean }} cell
 */
const classesOf = (grid, { slot, text, isChosen, isActive }) => {
  const classes = ["cell", grid.column(slot).kind];
  if (text === undefined) classes.push("waits");
  if (text === null || (text === "nan" && grid.column(slot).kind === "number")) classes.push("none");
  if (isChosen) classes.push("chosen");
  if (isActive) classes.push("active");
  if (slot.isPinned) classes.push("pinned");
  return classes.join(" ");
};

/**
 * @param {Grid} grid
 * @param {number} row
 * @param {Slot} slot
 * @param {ReturnType<Grid["chosen"]>} box
 */
const drawCell = (grid, row, slot, box) => {
  const { index, position } = slot;
  const cell = grid.cells.get(row)?.[index];
  const text = drawnText(cell);
  const isInside = row >= box.top && row <= box.bottom && position >= box.left && position <= box.right;
  const isChosen = isInside && grid.anchor !== null;
  const isActive = row === grid.active.row && position === grid.active.column;
  const properties = {
    role: "gridcell",
    id: `${grid.id}-${row}-${position}`,
    "aria-colindex": String(position + 2),
    "aria-selected": String(isChosen || isActive),
    dir: "auto",
    class: classesOf(grid, { slot, text, isChosen, isActive }),
    style: style(grid, slot),
    title: Array.isArray(cell) ? cell[1] : text && text.length > 24 ? text : null,
  };
  return h("div", properties, text === null ? "null" : (text ?? ""));
};

/**
 * @param {Grid} grid
 * @param {number} row
 * @param {Slot[]} slots
 * @param {ReturnType<Grid["chosen"]>} box
 */
const drawRow = (grid, row, slots, box) => {
  const tall = rowHeight(grid);
  const properties = {
    role: "row",
    class: row % 2 ? "row odd" : "row",
    "aria-rowindex": String(row + 2),
    style: `top:${grid.head + row * tall - grid.top}px;height:${tall}px`,
  };
  const header = { role: "rowheader", "aria-colindex": "1", class: "cell number", style: `width:${grid.gutter}px` };
  const cells = slots.map((slot) => drawCell(grid, row, slot, box));
  return h("div", properties, h("div", header, number(row + 1)), ...cells);
};

/**
 * Return the buttons of a header. Keys have a way of their own to what they open.
 * @param {string} name
 * @param {Slot} slot
 */
const headerButtons = (name, { width }) => {
  const funnel = svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("path", { d: FUNNEL }));
  const button = { type: "button", tabindex: "-1" };
  return [
    width >= WITH_FUNNEL && h("button", { ...button, class: "funnel", "aria-label": `Filter ${name}` }, funnel),
    h("button", { ...button, class: "dots", "aria-label": `Menu of ${name}` }, "⋮"),
  ];
};

/**
 * @param {Grid} grid
 * @param {Slot} slot
 */
const drawHeader = (grid, slot) => {
  const { name, type, means } = grid.column(slot);
  const order = grid.orderOf(name);
  const isActive = grid.active.row === -1 && grid.active.column === slot.position;
  const properties = {
    role: "columnheader",
    id: `${grid.id}--1-${slot.position}`,
    "aria-colindex": String(slot.position + 2),
    "aria-sort": order ? (order[1] ? "descending" : "ascending") : "none",
    class: `cell${isActive ? " active" : ""}${slot.isPinned ? " pinned" : ""}`,
    style: `${style(grid, slot)};height:${grid.head}px`,
    title: [`${name} · ${type}`, means].filter(Boolean).join("\n"),
    "data-place": String(slot.position),
  };
  const mark = order && h("span", { "aria-hidden": "true" }, order[1] ? " ▼" : " ▲");
  return h(
    "div",
    properties,
    h("div", { class: "name" }, h("b", {}, name || "(no name)"), mark, ...headerButtons(name, slot)),
    h("div", { class: "facts dim" }, type.toLowerCase(), means && ` · ${means}`),
    !grid.isFew && sketch(grid, slot),
    h("div", { class: "grip", "aria-hidden": "true" }),
  );
};

/**
 * @param {Grid} grid
 * @param {Slot[]} slots
 */
const drawHead = (grid, slots) => {
  const size = `width:${grid.gutter}px;height:${grid.head}px`;
  const corner = { role: "columnheader", class: "cell corner", "aria-colindex": "1", style: size };
  const headers = slots.map((slot) => drawHeader(grid, slot));
  const row = { role: "row", "aria-rowindex": "1", class: "row", style: `height:${grid.head}px` };
  return h("div", row, h("div", corner, h("span", { class: "unseen" }, "row")), ...headers);
};

/** @param {Grid} grid */
const noRows = (grid) => {
  const text = grid.state.conditions.length ? "No row passes the filters." : "No rows.";
  const cell = h("div", { role: "gridcell", "aria-colindex": "2", class: "empty dim" }, text);
  return h("div", { role: "row", "aria-rowindex": "2", class: "row", style: `top:${grid.head}px` }, cell);
};

/**
 * Draw the header and the rows in sight, then ask for what is missing.
 * @param {Grid} grid
 */
export const draw = (grid) => {
  const { viewport, head, body, layer } = grid.parts;
  const tall = rowHeight(grid);
  const slots = slotsInSight(grid);
  const box = grid.chosen();
  const first = Math.floor(grid.top / tall);
  const last = Math.min(grid.state.rows, Math.ceil((grid.top + bodyHeight(grid)) / tall));
  const rows = [];
  for (let row = first; row < last; row++) rows.push(drawRow(grid, row, slots, box));
  if (!grid.state.rows) rows.push(noRows(grid));
  head.replaceChildren(drawHead(grid, slots));
  body.replaceChildren(...rows);
  body.classList.toggle("wrapped", grid.view.wrap);
  layer.classList.toggle("shifted", grid.left > 0 && grid.pinnedWidth > 0);
  const active = grid.root.querySelector(`[id="${grid.id}-${grid.active.row}-${grid.active.column}"]`);
  if (active) viewport.setAttribute("aria-activedescendant", active.id);
  else viewport.removeAttribute("aria-activedescendant");
  if (slots.length && isMissing(grid, first, last, slots)) {
    fetchCells(grid, first, last, slots);
    return;
  }
  viewport.dataset.settled = `${first}-${last}`;
  finish(grid);
  if (!grid.isFew) profileNext(grid, slots);
};
