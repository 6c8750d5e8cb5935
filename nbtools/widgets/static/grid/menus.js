// The menu of a column, and the form of its filter: both lie above the page, below the header of their column.
import { loadPart } from "../part.js";
import { h, put } from "../shared.js";
import { filterBy, keepOnly, sortBy } from "./filters.js";
import { copy } from "./keys.js";
import { arrangeSlots, goToCell, resize, widen, xOf } from "./layout.js";
import { profile } from "./profiles.js";
import { clamp } from "./state.js";

/** @import { Grid, Slot } from "./state.js" */
/** @typedef {[label: string, act: () => unknown]} Item */

/**
 * @param {Grid} grid
 * @param {boolean} isFocusing the keys go back to the grid
 */
export const closeMenu = (grid, isFocusing = true) => {
  const { menu } = grid;
  grid.menu = null;
  menu?.remove();
  if (isFocusing) grid.parts.viewport.focus({ preventScroll: true });
};

/**
 * Pin a column, or set it free again.
 * @param {Grid} grid
 * @param {Slot} slot
 */
const togglePin = (grid, slot) => {
  const { view } = grid;
  const { name } = grid.column(slot);
  const others = view.pinned.filter((each) => each !== name);
  view.pinned = view.pinned.includes(name) ? others : [...others, name];
  grid.saveView();
  arrangeSlots(grid);
  const position = grid.slots.findIndex((each) => each.index === slot.index);
  goToCell(grid, grid.active.row, position);
  resize(grid);
};

/**
 * Return the items of a column's menu.
 * @param {Grid} grid
 * @param {Slot} slot
 * @returns {Item[]}
 */
const itemsOf = (grid, slot) => {
  const { index, position } = slot;
  const { name } = grid.column(slot);
  const facts = grid.profiles.get(index);
  const top = facts?.top[0];
  /** @type {(Item | false | undefined)[]} */
  const items = [
    ["Sort ascending", () => sortBy(grid, position, false)],
    ["Sort descending", () => sortBy(grid, position, true)],
    grid.orderOf(name) && ["Remove the sort", () => sortBy(grid, position, null)],
    ["Filter…", () => openFilter(grid, slot)],
    top && ["Keep the most frequent value", () => keepOnly(grid, index, top[0])],
    facts && facts.rows < facts.of && ["Exact profile", () => profile(grid, index, true)],
    [grid.view.pinned.includes(name) ? "Unpin" : "Pin", () => togglePin(grid, slot)],
    ["Wider", () => widen(grid, slot, 48)],
    ["Narrower", () => widen(grid, slot, -48)],
    ["Copy the name", () => put(name)],
  ];
  return items.filter((each) => each !== undefined && each !== false);
};

/**
 * Return the items that are about the cells where the menu is opened.
 * @param {Grid} grid
 * @returns {Item[]}
 */
const cellItems = (grid) => {
  const { row } = grid.active;
  const { openRow } = grid;
  if (row < 0) return [];
  /** @type {Item[]} */
  const items = [
    ["Copy", () => copy(grid)],
    ["Copy as Markdown", () => copy(grid, "markdown")],
  ];
  return openRow ? [["Row in full", () => openRow(row)], ...items] : items;
};

/**
 * Follow the keys of a menu.
 * @param {Grid} grid
 * @param {HTMLElement} menu
 * @param {KeyboardEvent} event
 */
const followMenuKeys = (grid, menu, event) => {
  const items = /** @type {HTMLElement[]} */ ([...menu.children]);
  const at = items.findIndex((each) => each === menu.ownerDocument.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
  if (to !== undefined) items[(to + items.length) % items.length].focus();
  else if (event.key === "Escape" || event.key === "Tab") closeMenu(grid);
  else return;
  event.preventDefault();
};

/**
 * Put a menu or a form above the page, below the header of a column, as far as there is room.
 * @param {Grid} grid
 * @param {Slot} slot
 * @param {HTMLElement} menu
 */
export const placeMenu = (grid, slot, menu) => {
  closeMenu(grid, false);
  grid.menu = menu;
  // A press on its words gives it the keys, and not the cell of a notebook, which would close it before the click.
  menu.tabIndex = -1;
  grid.root.append(menu);
  menu.showPopover?.();
  const { viewport, work } = grid.parts;
  const stand = () => {
    if (!menu.isConnected) return watcher.disconnect();
    const box = viewport.getBoundingClientRect();
    const scale = box.width / viewport.offsetWidth || 1;
    const size = menu.getBoundingClientRect();
    const left = clamp(box.left + xOf(grid, slot) * scale, 4, Math.max(innerWidth - size.width - 4, 4));
    const top = clamp(box.top + grid.head * scale, 4, Math.max(innerHeight - size.height - 4, 4));
    menu.style.left = `${left / scale}px`;
    menu.style.top = `${top / scale}px`;
  };
  // What is counted comes later, and takes room; so does what tells of work, above the header.
  const watcher = new ResizeObserver(stand);
  for (const each of [menu, work]) watcher.observe(each);
  stand();
  menu.addEventListener("focusout", ({ relatedTarget }) => {
    const isOutside = relatedTarget instanceof Node && !menu.contains(relatedTarget);
    if (grid.menu === menu && isOutside) closeMenu(grid, false);
  });
  closeWithPage(grid, menu);
};

/**
 * Close a menu when the page is pressed elsewhere, or scrolls away below it.
 * @param {Grid} grid
 * @param {HTMLElement} menu
 */
const closeWithPage = (grid, menu) => {
  const done = new AbortController();
  /** @param {Event} event */
  const look = ({ target }) => {
    if (target instanceof Node && menu.contains(target)) return;
    done.abort();
    if (grid.menu === menu) closeMenu(grid, false);
  };
  const options = { signal: done.signal, capture: true };
  window.addEventListener("pointerdown", look, options);
  window.addEventListener("wheel", look, options);
  grid.signal?.addEventListener("abort", () => done.abort());
};

/**
 * Open the menu of a column below its header.
 * @param {Grid} grid
 * @param {Slot} slot
 * @param {Item[]} more items at its end
 */
export const openMenu = (grid, slot, more) => {
  const items = [...cellItems(grid), ...itemsOf(grid, slot), ...more].map(([label, act]) => {
    const onclick = () => {
      closeMenu(grid);
      act();
    };
    return h("button", { role: "menuitem", tabindex: "-1", class: "plain", onclick }, label);
  });
  const properties = {
    class: "menu",
    role: "menu",
    popover: "manual",
    "aria-label": `Column ${grid.column(slot).name}`,
  };
  const menu = h("div", properties, ...items);
  placeMenu(grid, slot, menu);
  menu.addEventListener("keydown", (event) => followMenuKeys(grid, menu, event));
  items[0].focus();
};

/**
 * Open the form of a column's filter.
 * @param {Grid} grid
 * @param {Slot} slot
 */
export const openFilter = async (grid, slot) => {
  const { filterForm } = await loadPart(grid.link, "grid/filter");
  const lay = (/** @type {HTMLElement} */ menu) => placeMenu(grid, slot, menu);
  filterForm(grid, slot, { lay, close: () => closeMenu(grid), filterBy });
};
