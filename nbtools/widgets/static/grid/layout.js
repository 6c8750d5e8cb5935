// Where rows and columns are, and scrolling: geometry in pixels of `top` and `left`, which the scroll bars follow.
import { number } from "../shared.js";
import { clamp, FEW_ROWS, LONGEST, NARROWEST, WIDEST } from "./state.js";

/** @import { Column, Drawn, Grid, Slot, TableState, View } from "./state.js" */

const WIDEST_FITTED = 300;
const TALLEST = 400;

/** @param {Column} column */
export const guessedWidth = ({ name, kind }) =>
  clamp(name.length * 7.4 + 66, kind === "number" ? 112 : kind === "time" ? 150 : 120, 260);

/**
 * Return a cell's text as it is drawn; of a number with more digits comes a pair, the text and the whole one.
 * @param {Drawn | undefined} cell
 */
export const drawnText = (cell) => (Array.isArray(cell) ? cell[0] : cell);

/**
 * Return the slots of all columns that are shown: pinned ones first, the others behind them.
 * @param {TableState} state
 * @param {View} view
 */
export const arranged = ({ columns, shown: visible }, { pinned, widths }) => {
  const indexes = visible ?? [...columns.keys()];
  const fixed = pinned
    .map((name) => columns.findIndex((each) => each.name === name))
    .filter((index) => indexes.includes(index));
  const order = [...fixed, ...indexes.filter((index) => !fixed.includes(index))];
  let x = 0;
  return order.map((index, position) => {
    const width = widths[columns[index].name] ?? guessedWidth(columns[index]);
    const slot = { index, position, x, width, isPinned: position < fixed.length };
    x += width;
    return slot;
  });
};

/**
 * Return the slots in sight: all that are pinned, and the others that begin or end between two pixels.
 * @param {Slot[]} slots
 * @param {number} low
 * @param {number} high
 */
export const slotsBetween = (slots, low, high) => {
  const inSight = slots.filter((each) => each.isPinned);
  // The first one in sight, by halves.
  let [at, end] = [inSight.length, slots.length];
  while (at < end) {
    const middle = (at + end) >> 1;
    if (slots[middle].x + slots[middle].width > low) end = middle;
    else at = middle + 1;
  }
  for (; at < slots.length && slots[at].x < high; at++) inSight.push(slots[at]);
  return inSight;
};

/** @param {Grid} grid */
export const rowHeight = (grid) => (grid.view.wrap ? 64 : 24);
/** @param {Grid} grid */
export const bodyHeight = (grid) => Math.max(grid.parts.viewport.clientHeight - grid.head, 1);
/** @param {Grid} grid */
const roomForColumns = (grid) => Math.max(grid.parts.viewport.clientWidth - grid.gutter - grid.pinnedWidth, 1);
/** @param {Grid} grid */
const totalHeight = (grid) => grid.state.rows * rowHeight(grid);
/** @param {Grid} grid */
const sizerHeight = (grid) => Math.min(totalHeight(grid), LONGEST);
/** @param {Grid} grid */
const greatestTop = (grid) => Math.max(totalHeight(grid) - bodyHeight(grid), 0);
/** @param {Grid} grid */
const greatestLeft = (grid) => Math.max(grid.allWidth - grid.pinnedWidth - roomForColumns(grid), 0);
/**
 * Return how many pixels of rows one pixel of the scroll bar is.
 * @param {Grid} grid
 */
const scrollRatio = (grid) =>
  (totalHeight(grid) - bodyHeight(grid)) / Math.max(sizerHeight(grid) - bodyHeight(grid), 1);

/** @param {Grid} grid */
export const slotsInSight = (grid) => {
  const low = grid.left + grid.pinnedWidth;
  return slotsBetween(grid.slots, low, low + roomForColumns(grid));
};

/**
 * Return the pixel at which a slot is drawn.
 * @param {Grid} grid
 * @param {Slot} slot
 */
export const xOf = (grid, slot) => grid.gutter + slot.x - (slot.isPinned ? 0 : grid.left);

/** @param {Grid} grid */
export const arrangeSlots = (grid) => {
  // Room for the greatest number of a row.
  grid.gutter = 22 + 8 * Math.max(3, number(grid.state.rows).length);
  grid.slots = arranged(grid.state, grid.view);
  grid.pinnedWidth = grid.slots.filter((each) => each.isPinned).reduce((sum, each) => sum + each.width, 0);
  grid.allWidth = grid.slots.reduce((sum, each) => sum + each.width, 0);
  grid.parts.viewport.setAttribute("aria-colcount", String(grid.slots.length + 1));
};

/**
 * @param {Grid} grid
 * @param {number} top
 * @param {number} left
 */
export const scrollTo = (grid, top, left) => {
  const { viewport } = grid.parts;
  grid.top = clamp(top, 0, greatestTop(grid));
  grid.left = clamp(left, 0, greatestLeft(grid));
  viewport.scrollTop = Math.round(grid.top / scrollRatio(grid));
  viewport.scrollLeft = Math.round(grid.left);
  // What the browser made of it: its own event says nothing new.
  grid.scrollTop = viewport.scrollTop;
  grid.scrollLeft = viewport.scrollLeft;
  grid.paint();
};

/**
 * Follow the scroll bars.
 * @param {Grid} grid
 */
export const followScrollBars = (grid) => {
  const { scrollTop, scrollLeft } = grid.parts.viewport;
  if (Math.abs(scrollLeft - grid.scrollLeft) >= 1) {
    grid.scrollLeft = scrollLeft;
    grid.left = clamp(scrollLeft, 0, greatestLeft(grid));
  }
  const by = scrollTop - grid.scrollTop;
  if (Math.abs(by) >= 1) {
    grid.scrollTop = scrollTop;
    const end = sizerHeight(grid) - bodyHeight(grid);
    const isInside = scrollTop > 0 && scrollTop < end - 1;
    const isNear = scrollRatio(grid) > 1.01 && Math.abs(by) <= bodyHeight(grid) && isInside;
    grid.top = clamp(isNear ? grid.top + by : scrollTop * scrollRatio(grid), 0, greatestTop(grid));
  }
  grid.paint();
};

/**
 * Follow the wheel: a tick is three rows. Return whether there was a way to go.
 * @param {Grid} grid
 * @param {WheelEvent} event
 */
export const followWheel = (grid, event) => {
  const units = [(3 * rowHeight(grid)) / 100, rowHeight(grid), bodyHeight(grid)];
  const down = (event.shiftKey ? 0 : event.deltaY) * units[event.deltaMode];
  const right = event.deltaX + (event.shiftKey ? event.deltaY : 0);
  const { top, left } = grid;
  scrollTo(grid, top + down, left + right);
  return top !== grid.top || left !== grid.left;
};

/** @param {Grid} grid */
export const resize = (grid) => {
  const { viewport, sizer, layer } = grid.parts;
  arrangeSlots(grid);
  const width = grid.gutter + grid.allWidth;
  const rows = Math.min(grid.state.rows, FEW_ROWS) * rowHeight(grid);
  const height = rows + grid.head + (width > viewport.clientWidth ? 16 : 0);
  viewport.style.height = `${clamp(height, grid.head + 32, TALLEST)}px`;
  sizer.style.height = `${grid.head + sizerHeight(grid)}px`;
  sizer.style.width = `${width}px`;
  layer.style.width = `${viewport.clientWidth}px`;
  layer.style.height = `${viewport.clientHeight}px`;
  scrollTo(grid, grid.top, grid.left);
};

/**
 * Give columns a width that fits what is first seen of them; return whether one changed.
 * @param {Grid} grid
 * @param {Drawn[][]} rows
 * @param {number[]} indexes of the columns
 */
export const fitWidths = (grid, rows, indexes) => {
  let isChanged = false;
  indexes.forEach((index, at) => {
    const column = grid.state.columns[index];
    if (grid.fitted.has(column.name) || !rows.length) return;
    grid.fitted.add(column.name);
    if (grid.view.widths[column.name]) return;
    const longest = Math.max(...rows.map((row) => drawnText(row[at])?.length ?? 4));
    const width = Math.max(longest * 7.6 + 22, guessedWidth(column));
    grid.view.widths[column.name] = clamp(width, NARROWEST, WIDEST_FITTED);
    isChanged = true;
  });
  return isChanged;
};

/**
 * Give a column a width by a person's wish.
 * @param {Grid} grid
 * @param {Slot} slot
 * @param {number} width
 */
export const setWidth = (grid, slot, width) => {
  grid.view.widths[grid.column(slot).name] = clamp(width, NARROWEST, WIDEST);
  resize(grid);
};

/**
 * @param {Grid} grid
 * @param {Slot} slot
 * @param {number} by
 */
export const widen = (grid, slot, by) => {
  setWidth(grid, slot, slot.width + by);
  grid.saveView();
};

/**
 * Scroll as little as brings a cell into sight.
 * @param {Grid} grid
 * @param {number} row
 * @param {number} column
 */
const reveal = (grid, row, column) => {
  const slot = grid.slots[column];
  const tall = rowHeight(grid);
  let { top, left } = grid;
  // Of what is larger than the room, the start is seen.
  if (row >= 0) top = Math.min(Math.max(top, (row + 1) * tall - bodyHeight(grid)), row * tall);
  if (slot && !slot.isPinned) {
    const x = slot.x - grid.pinnedWidth;
    left = Math.min(Math.max(left, x + slot.width - roomForColumns(grid)), x);
  }
  scrollTo(grid, top, left);
};

/**
 * Make a cell the active one, and show it.
 * @param {Grid} grid
 * @param {number} row -1 for the header
 * @param {number} column
 * @param {boolean} isExtending the rectangle grows from where it began
 */
export const goToCell = (grid, row, column, isExtending = false) => {
  const before = grid.active.column;
  grid.anchor = isExtending ? (grid.anchor ?? { ...grid.active }) : null;
  grid.active = {
    row: clamp(row, isExtending ? 0 : -1, grid.state.rows - 1),
    column: clamp(column, 0, Math.max(grid.slots.length - 1, 0)),
  };
  // Whole rows grow without a way to their last column.
  reveal(grid, grid.active.row, isExtending && before === grid.active.column ? -1 : grid.active.column);
};

/**
 * Give a column a width that fits the values that are there.
 * @param {Grid} grid
 * @param {Slot} slot
 */
export const fitWidth = (grid, slot) => {
  const column = grid.column(slot);
  const texts = [...grid.cells.values()].map((cells) => drawnText(cells[slot.index]) ?? "null");
  const longest = texts.reduce((most, text) => Math.max(most, text.length), 0);
  setWidth(grid, slot, Math.max(longest * 7.6 + 22, column.name.length * 7.4 + 66));
  grid.saveView();
};

/**
 * Return a point of the page in pixels of the viewport, whose page may be scaled.
 * @param {Grid} grid
 * @param {{ clientX: number, clientY: number }} point
 */
const pointIn = (grid, { clientX, clientY }) => {
  const { viewport } = grid.parts;
  const box = viewport.getBoundingClientRect();
  const scale = box.width / viewport.offsetWidth || 1;
  return { x: (clientX - box.left) / scale, y: (clientY - box.top) / scale };
};

/**
 * Return the cell at a point of the page; without a slot it is beside all columns.
 * @param {Grid} grid
 * @param {{ clientX: number, clientY: number }} point
 * @returns {{ slot: Slot | undefined, row: number }}
 */
export const cellAt = (grid, point) => {
  const { slots, pinnedWidth, left } = grid;
  const { x, y } = pointIn(grid, point);
  const inside = x - grid.gutter;
  const isPinned = inside < pinnedWidth;
  const across = isPinned ? inside : inside + left;
  const slot = slots.find((each) => across >= each.x && across < each.x + each.width && each.isPinned === isPinned);
  return { slot, row: y < grid.head ? -1 : Math.floor((grid.top + y - grid.head) / rowHeight(grid)) };
};

/**
 * Let the rectangle grow to a point; above or below the rows it grows by what scrolls in. Return whether it is there.
 * @param {Grid} grid
 * @param {{ clientX: number, clientY: number }} point
 */
export const extendTo = (grid, point) => {
  const { slot, row } = cellAt(grid, point);
  const { y } = pointIn(grid, point);
  const isAbove = y < grid.head;
  const isBelow = y > grid.head + bodyHeight(grid);
  const tall = rowHeight(grid);
  const above = Math.ceil(grid.top / tall) - 1;
  const below = Math.floor((grid.top + bodyHeight(grid)) / tall);
  goToCell(grid, isAbove ? above : isBelow ? below : row, slot?.position ?? grid.active.column, true);
  return isAbove || isBelow;
};
