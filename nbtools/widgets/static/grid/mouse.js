// The mouse: scrolling, choosing, sorting, widths, and a range of values brushed in a profile.
import { filterBy, keepOnly, toggleSort } from "./filters.js";
import { openValue } from "./keys.js";
import { cellAt, extendTo, fitWidth, followScrollBars, followWheel, goToCell, setWidth } from "./layout.js";
import { profile } from "./profiles.js";
import { clamp } from "./state.js";

/** @import { Grid, Slot } from "./state.js" */

const STILL_PX = 3;
const SCROLL_MS = 60;

/**
 * Call functions while the mouse moves with its button held, and once it is let go.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {(by: number, moved: PointerEvent) => void} move
 * @param {() => void} end
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
  const stop = () => {
    done.abort();
    end();
  };
  layer.addEventListener("pointermove", follow, { signal });
  layer.addEventListener("pointerup", stop, { signal });
  layer.addEventListener("pointercancel", stop, { signal });
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
  drag(grid, event, move, () => {
    grid.brush = null;
    const from = Math.min(range.from, range.to);
    const to = Math.max(range.from, range.to);
    const [low, high] = [facts.bins[from][0], facts.bins[to][1]];
    filterBy(grid, { column: index, op: "between", low, high, last: to === last });
  });
};

/**
 * Do something once the button is let go where it was pressed: neither after a swipe, which scrolls the page, nor after
 * the hand moved away.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {() => void} act
 */
const click = (grid, event, act) => {
  const { layer } = grid.parts;
  const done = new AbortController();
  const { signal } = done;
  /** @param {PointerEvent} up */
  const release = (up) => {
    done.abort();
    if (Math.hypot(up.clientX - event.clientX, up.clientY - event.clientY) <= STILL_PX) act();
  };
  layer.addEventListener("pointerup", release, { signal });
  layer.addEventListener("pointercancel", () => done.abort(), { signal });
  window.addEventListener("pointerup", () => done.abort(), { signal });
};

/**
 * Follow the button of the mouse, by what is below it.
 * @param {Grid} grid
 * @param {PointerEvent} event
 */
const press = (grid, event) => {
  const { slot, row } = cellAt(grid, event);
  if (event.button || !slot || row >= grid.state.rows || !(event.target instanceof Element)) return;
  grid.parts.viewport.focus({ preventScroll: true });
  event.preventDefault();
  const bars = event.target.closest(".bars");
  if (event.target.closest(".grip")) {
    const move = (/** @type {number} */ by) => setWidth(grid, slot, slot.width + by);
    drag(grid, event, move, () => grid.saveView());
  } else if (bars) brush(grid, event, slot, bars);
  else if (row < 0) pressHeader(grid, event, slot, event.target);
  else chooseCells(grid, event, slot, row);
};

/**
 * Filter by a frequent value, make a profile exact, or sort: by what is below the mouse.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {Slot} slot
 * @param {Element} target
 */
const pressHeader = (grid, event, slot, target) => {
  const value = target.closest("[data-top]");
  const top = value instanceof HTMLElement ? value.dataset.top : undefined;
  click(grid, event, () => {
    if (target.closest(".exact")) profile(grid, slot.index, true);
    else if (top !== undefined) keepOnly(grid, slot.index, top);
    else {
      goToCell(grid, -1, slot.position);
      toggleSort(grid, slot.position);
    }
  });
};

/**
 * Choose cells, from the one below the mouse to the one that it is drawn to.
 * @param {Grid} grid
 * @param {PointerEvent} event
 * @param {Slot} slot
 * @param {number} row
 */
const chooseCells = (grid, event, slot, row) => {
  /** Where the mouse is held beyond the rows, which go on scrolling. @type {PointerEvent | null} */
  let beyond = null;
  /** @param {PointerEvent} moved */
  const extend = (moved) => {
    beyond = extendTo(grid, moved) ? moved : null;
  };
  const timer = setInterval(() => beyond && extend(beyond), SCROLL_MS);
  goToCell(grid, row, slot.position, event.shiftKey);
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
  layer.addEventListener("pointerdown", (event) => press(grid, event));
  layer.addEventListener("dblclick", (event) => {
    const { slot, row } = cellAt(grid, event);
    if (!slot || row >= grid.state.rows) return;
    if (row >= 0) openValue(grid, row, slot);
    else if (elementAt(grid, event)?.closest(".grip")) fitWidth(grid, slot);
  });
  layer.addEventListener("contextmenu", (event) => {
    const { slot, row } = cellAt(grid, event);
    if (!slot) return;
    event.preventDefault();
    goToCell(grid, row, slot.position);
    openMenu(slot.position);
  });
};
