// What changes which rows there are and their order: sorting, filters, and the menu of a column.
import { h, number, put, showError } from "../shared.js";
import { arrangeSlots, goToCell, resize, widen, xOf } from "./layout.js";
import { profile } from "./profiles.js";
import { clamp } from "./state.js";

/** @import { Grid, Slot } from "./state.js" */
/** @typedef {[label: string, act: () => unknown]} Item */

// A bar that comes and goes at once would only flicker.
const BAR_AFTER_MS = 120;
const BY_VALUE = ["is missing", "is there"];
/** @type {Record<string, string[]>} */
const OPERATORS = { text: ["contains", "=", "≠", ...BY_VALUE], bool: ["=", ...BY_VALUE] };
const ALL_OPERATORS = ["=", "≠", "<", "≤", ">", "≥", "between", ...BY_VALUE];

/**
 * Ask for a change of the rows, with its progress and Stop; one that runs ends.
 * @param {Grid} grid
 * @param {string} name
 * @param {object} details
 * @param {string} label
 */
export const change = async (grid, name, details, label) => {
  const { work, error } = grid.parts;
  grid.busy?.abort();
  grid.profiling?.stop.abort();
  const mine = new AbortController();
  grid.busy = mine;
  const bar = h("progress", { max: "1", "aria-label": label });
  const timer = setTimeout(() => {
    const stop = h("button", { class: "stop danger", onclick: () => mine.abort() }, "Stop");
    work.replaceChildren(h("span", {}, `${label}…`), bar, stop);
    work.hidden = false;
  }, BAR_AFTER_MS);
  /** @param {number} share */
  const progress = (share) => {
    bar.value = share;
  };
  showError(error, null);
  try {
    return await grid.link.ask(name, details, { signal: mine.signal, progress });
  } catch (problem) {
    showError(error, problem);
    if (problem.stopped && grid.busy === mine) grid.say(`${label}: stopped.`);
  } finally {
    clearTimeout(timer);
    if (grid.busy === mine) {
      grid.busy = null;
      work.hidden = true;
      grid.paint();
    }
  }
};

/**
 * Sort by a column, or put the original order back with null.
 * @param {Grid} grid
 * @param {number} position of the column
 * @param {boolean | null} isDescending
 */
const sortBy = async (grid, position, isDescending) => {
  const { name } = grid.column(grid.slots[position]);
  const order = isDescending === null ? [] : [[name, isDescending]];
  await change(grid, "sort", { order }, `Sorting by ${name}`);
  const direction = isDescending ? "descending" : "ascending";
  grid.say(grid.orderOf(name) ? `Sorted by ${name}, ${direction}.` : "In the original order.");
};

/**
 * Sort by a column: ascending, descending, in the original order, in turn.
 * @param {Grid} grid
 * @param {number} position of the column
 */
export const toggleSort = (grid, position) => {
  const order = grid.orderOf(grid.column(grid.slots[position]).name);
  return sortBy(grid, position, order ? (order[1] ? null : true) : false);
};

/**
 * @param {Grid} grid
 * @param {{ column: number, [detail: string]: unknown }} condition
 */
export const filterBy = async (grid, condition) => {
  const { name } = grid.column({ index: condition.column });
  await change(grid, "filter", { add: condition, rev: grid.state.rev }, `Filtering by ${name}`);
  grid.say(`${number(grid.state.rows)} rows.`);
};

/**
 * Keep the rows that have a value.
 * @param {Grid} grid
 * @param {number} index of the column
 * @param {string} value
 */
export const keepOnly = (grid, index, value) => filterBy(grid, { column: index, op: "=", value });

/**
 * Show the filters, each with a button that takes it away.
 * @param {Grid} grid
 */
export const showChips = (grid) => {
  const { chips, viewport } = grid.parts;
  const { conditions } = grid.state;
  /** @param {object} details */
  const drop = async (details) => {
    await change(grid, "filter", details, "Filtering");
    (chips.querySelector("button") ?? viewport).focus();
  };
  const buttons = conditions.map((text, at) => {
    const button = {
      class: "chip mono",
      "aria-label": `Remove the filter ${text}`,
      onclick: () => drop({ drop: at }),
    };
    return h("button", button, text, h("span", { "aria-hidden": "true" }, " ✕"));
  });
  if (conditions.length > 1) {
    buttons.push(h("button", { class: "plain", onclick: () => drop({ clear: true }) }, "Remove all"));
  }
  chips.hidden = !conditions.length;
  chips.replaceChildren(h("span", { class: "dim" }, "Filters:"), ...buttons);
};

/**
 * @param {Grid} grid
 * @param {boolean} isFocusing the keys go back to the grid
 */
const closeMenu = (grid, isFocusing = true) => {
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
 * Open the menu of a column below its header.
 * @param {Grid} grid
 * @param {Slot} slot
 * @param {Item[]} more items at its end
 */
export const openMenu = (grid, slot, more) => {
  closeMenu(grid, false);
  const items = [...itemsOf(grid, slot), ...more].map(([label, act]) => {
    const onclick = () => {
      closeMenu(grid);
      act();
    };
    return h("button", { role: "menuitem", tabindex: "-1", class: "plain", onclick }, label);
  });
  const menu = h("div", { class: "menu", role: "menu", "aria-label": `Column ${grid.column(slot).name}` }, ...items);
  grid.menu = menu;
  grid.root.append(menu);
  const base = grid.root.getBoundingClientRect();
  const top = grid.parts.viewport.getBoundingClientRect().top - base.top + 30;
  menu.style.left = `${clamp(xOf(grid, slot), 4, Math.max(base.width - menu.offsetWidth - 8, 4))}px`;
  menu.style.top = `${top}px`;
  menu.addEventListener("keydown", (event) => followMenuKeys(grid, menu, event));
  menu.addEventListener("focusout", ({ relatedTarget }) => {
    const isOutside = relatedTarget instanceof Node && !menu.contains(relatedTarget);
    if (grid.menu === menu && isOutside) closeMenu(grid, false);
  });
  items[0].focus();
};

/**
 * Open the form of a column's filter.
 * @param {Grid} grid
 * @param {Slot} slot
 */
const openFilter = (grid, slot) => {
  const { name, kind } = grid.column(slot);
  const operators = (OPERATORS[kind] ?? ALL_OPERATORS).map((each) => h("option", {}, each));
  const operator = h("select", { "aria-label": "Comparison" }, ...operators);
  const value = h("input", { type: "text", "aria-label": "Value", size: "16" });
  const to = h("input", { type: "text", "aria-label": "Upper value", size: "16", hidden: true });
  operator.addEventListener("change", () => {
    value.hidden = BY_VALUE.includes(operator.value);
    to.hidden = operator.value !== "between";
  });
  /** @param {Event} event */
  const onsubmit = (event) => {
    event.preventDefault();
    closeMenu(grid);
    filterBy(grid, { column: slot.index, op: operator.value, value: value.value, to: to.value });
  };
  closeMenu(grid, false);
  const submit = h("button", { type: "submit", class: "primary" }, "Filter");
  const cancel = h("button", { type: "button", onclick: () => closeMenu(grid) }, "Cancel");
  const fields = [h("b", {}, name), operator, value, to, submit, cancel];
  const menu = h("form", { class: "menu form", "aria-label": `Filter ${name}`, onsubmit }, ...fields);
  grid.menu = menu;
  grid.root.append(menu);
  menu.style.left = "8px";
  menu.style.top = `${grid.parts.viewport.offsetTop + 30}px`;
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeMenu(grid);
  });
  operator.focus();
};
