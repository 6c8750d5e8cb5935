// The mouse: scrolling, choosing, sorting, widths, and a range of values brushed in a profile.
import { filterBy, keepOnly, toggleSort } from "./filters.js";
import { openValue } from "./keys.js";
import { cellAt, extendTo, fitWidth, followScrollBars, followWheel, goToCell, setWidth } from "./layout.js";
import { openFilter } from "./menus.js";
import { profile } from "./profiles.js";
import { clamp } from "./state.js";

/** @import { Grid, Slot } from "./state.js" */

const STILL_PX = 3;
const SCROLL_MS = 60;
const HELD_MS = 550;

/**
 * Call functions while the mouse moves with its button held, and once it is let go.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {(by: number, moved: PointerEvent) => void} move
 * @param {(isDone: boolean) => void} end of a finger that began to scroll the page, nothing is done
 */
const drag = (grid, event, move, end) => {
  const { layer } = grid.parts;
  const done = new AbortController();
  const { signal } = done;
  layer.setPointerCapture(event.pointerId);
  /** @param {PointerEvent} moved */
  const follow = (moved) => {
    const by = moved.clientX - event.clientX;
    if (Math.hypot(by, moved.clientY - event.clientY) > STILL_PX) move(by, moved);
  };
  /** @param {boolean} isDone */
  const stop = (isDone) => {
    done.abort();
    end(isDone);
  };
  layer.addEventListener("pointermove", follow, { signal });
  layer.addEventListener("pointerup", () => stop(true), { signal });
  layer.addEventListener("pointercancel", () => stop(false), { signal });
};

/**
 * Filter by the bars of a profile that the mouse is drawn across.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {Slot} slot
 * @param {Element} bars
 */
const brush = (grid, event, slot, bars) => {
  const { index } = slot;
  const facts = grid.profiles.get(index);
  if (!facts) return;
  const box = bars.getBoundingClientRect();
  const last = facts.bins.length - 1;
  /** @param {number} x */
  const barAt = (x) => clamp(Math.floor(((x - box.left) / box.width) * facts.bins.length), 0, last);
  const range = { index, from: barAt(event.clientX), to: barAt(event.clientX) };
  grid.brush = range;
  grid.paint();
  /** @type {Parameters<typeof drag>[2]} */
  const move = (_by, { clientX }) => {
    range.to = barAt(clientX);
    grid.paint();
  };
  drag(grid, event, move, (isDone) => {
    grid.brush = null;
    grid.paint();
    if (!isDone) return;
    const from = Math.min(range.from, range.to);
    const to = Math.max(range.from, range.to);
    const [low, high] = [facts.bins[from][0], facts.bins[to][1]];
    filterBy(grid, { column: index, op: "between", low, high, last: to === last });
  });
};

/**
 * Do something once the button is let go where it was pressed: neither after a swipe, which scrolls the page, nor after
 * the hand moved away. A finger that is held does something else.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {() => void} act
 * @param {() => void} [hold]
 */
const click = (grid, event, act, hold) => {
  const { layer } = grid.parts;
  const done = new AbortController();
  const { signal } = done;
  grid.pressed = done;
  /** @param {PointerEvent} up */
  const release = (up) => {
    done.abort();
    if (Math.hypot(up.clientX - event.clientX, up.clientY - event.clientY) <= STILL_PX) act();
  };
  layer.addEventListener("pointerup", release, { signal });
  layer.addEventListener("pointercancel", () => done.abort(), { signal });
  window.addEventListener("pointerup", () => done.abort(), { signal });
  if (event.pointerType !== "touch" || !hold) return;
  const timer = setTimeout(() => {
    done.abort();
    hold();
  }, HELD_MS);
  signal.addEventListener("abort", () => clearTimeout(timer));
};

/**
 * Follow the button of the mouse, or a finger, by what is below it.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {(position: number) => void} openMenu
 */
const press = (grid, event, openMenu) => {
  const { slot, row } = cellAt(grid, event);
  const { target } = event;
  if (event.button || row >= grid.state.rows || !(target instanceof Element)) return;
  if (!slot) {
    if (row >= 0 && target.closest("[role=rowheader]")) pressRow(grid, event, row);
    return;
  }
  grid.parts.viewport.focus({ preventScroll: true });
  event.preventDefault();
  const bars = target.closest(".bars");
  const hold = () => {
    goToCell(grid, row, slot.position);
    openMenu(slot.position);
  };
  if (target.closest(".grip")) {
    const move = (/** @type {number} */ by) => setWidth(grid, slot, slot.width + by);
    drag(grid, event, move, () => grid.saveView());
  } else if (bars) brush(grid, event, slot, bars);
  else if (row < 0) click(grid, event, () => actOnHeader(grid, slot, target, openMenu), hold);
  // A finger that moves scrolls.
  else if (event.pointerType === "touch") click(grid, event, () => goToCell(grid, row, slot.position), hold);
  else chooseCells(grid, event, slot, row);
};

/**
 * Choose whole rows, by their numbers.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {number} row
 */
const pressRow = (grid, event, row) => {
  grid.parts.viewport.focus({ preventScroll: true });
  event.preventDefault();
  if (!event.shiftKey || !grid.anchor) grid.anchor = { row, column: 0 };
  grid.active = { row, column: grid.slots.length - 1 };
  grid.paint();
  if (event.pointerType !== "touch") follow(grid, event);
};

/**
 * Open the menu or the filter of a column, filter by a frequent value, make a profile exact, or sort: by what was
 * pressed in a header.
 * @param {Grid} grid
 * @param {Slot} slot
 * @param {Element} target
 * @param {(position: number) => void} openMenu
 */
const actOnHeader = (grid, slot, target, openMenu) => {
  const value = target.closest("[data-top]");
  const top = value instanceof HTMLElement ? value.dataset.top : undefined;
  if (target.closest(".exact")) profile(grid, slot.index, true);
  else if (top !== undefined) keepOnly(grid, slot.index, top);
  else {
    goToCell(grid, -1, slot.position);
    if (target.closest(".dots")) openMenu(slot.position);
    else if (target.closest(".funnel")) openFilter(grid, slot);
    else toggleSort(grid, slot.position);
  }
};

/**
 * Choose cells, from the one below the mouse to the one that it is drawn to.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {Slot} slot
 * @param {number} row
 */
const chooseCells = (grid, event, slot, row) => {
  goToCell(grid, row, slot.position, event.shiftKey);
  follow(grid, event);
};

/**
 * Let the rectangle grow to where the mouse is drawn.
 * @param {Grid} grid
 * @param {PointerEvent} event
 */
const follow = (grid, event) => {
  /** Where the mouse is held beyond the rows, which go on scrolling. @type {PointerEvent | null} */
  let beyond = null;
  /** @param {PointerEvent} moved */
  const extend = (moved) => {
    beyond = extendTo(grid, moved) ? moved : null;
  };
  const timer = setInterval(() => beyond && extend(beyond), SCROLL_MS);
  drag(
    grid,
    event,
    (_by, moved) => extend(moved),
    () => clearInterval(timer),
  );
};

/**
 * Return what is drawn at a point: of a mouse that was captured, the target is the layer.
 * @param {Grid} grid
 * @param {MouseEvent} event
 */
const elementAt = (grid, { clientX, clientY }) => {
  const page = /** @type {Document | ShadowRoot} */ (grid.root.getRootNode());
  return page.elementFromPoint(clientX, clientY);
};

/**
 * Listen to the mouse.
 * @param {Grid} grid
 * @param {(column: number) => void} openMenu
 */
export const listenToMouse = (grid, openMenu) => {
  const { viewport, layer } = grid.parts;
  viewport.addEventListener("scroll", () => followScrollBars(grid), { passive: true });
  const onWheel = (/** @type {WheelEvent} */ event) => {
    // At an end, the page scrolls on.
    if (!event.ctrlKey && followWheel(grid, event)) event.preventDefault();
  };
  viewport.addEventListener("wheel", onWheel, { passive: false });
  layer.addEventListener("pointerdown", (event) => press(grid, event, openMenu));
  layer.addEventListener("dblclick", (event) => {
    const { slot, row } = cellAt(grid, event);
    if (row >= grid.state.rows) return;
    if (!slot) row >= 0 && grid.openRow?.(row);
    else if (row >= 0) openValue(grid, row, slot);
    else if (elementAt(grid, event)?.closest(".grip")) fitWidth(grid, slot);
  });
  layer.addEventListener("contextmenu", (event) => {
    const { slot, row } = cellAt(grid, event);
    if (!slot) return;
    event.preventDefault();
    grid.pressed?.abort();
    const { top, bottom, left, right } = grid.chosen();
    const isChosen = row >= top && row <= bottom && slot.position >= left && slot.position <= right;
    if (!grid.anchor || !isChosen) goToCell(grid, row, slot.position);
    openMenu(slot.position);
  });
};
