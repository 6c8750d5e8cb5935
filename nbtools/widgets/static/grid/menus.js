// The menu of a column, and the form of its filter: both lie above the page, below the header of their column.
import { h, later, number, put } from "../shared.js";
import { filterBy, keepOnly, sortBy } from "./filters.js";
import { arrangeSlots, goToCell, resize, widen, xOf } from "./layout.js";
import { profile } from "./profiles.js";
import { clamp } from "./state.js";

/** @import { Column, Grid, Slot } from "./state.js" */
/** @typedef {[label: string, act: () => unknown]} Item */

const BY_VALUE = ["is missing", "is there"];
const IN_ORDER = ["=", "≠", "<", "≤", ">", "≥", "between", ...BY_VALUE];
/** @type {Record<string, string[]>} */
const OPERATORS = {
  text: ["contains", "does not contain", "starts with", "=", "≠", ...BY_VALUE],
  bool: ["=", ...BY_VALUE],
  number: IN_ORDER,
  time: IN_ORDER,
};
/** Fields of the browser that ask for a value of a type. @type {Record<string, string>} */
const FIELDS = { date: "date", time: "time", timestamp: "datetime-local" };
const TYPED_MS = 250;

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
const placeMenu = (grid, slot, menu) => {
  closeMenu(grid, false);
  grid.menu = menu;
  grid.root.append(menu);
  menu.showPopover?.();
  const box = grid.parts.viewport.getBoundingClientRect();
  const scale = box.width / grid.parts.viewport.offsetWidth || 1;
  const size = menu.getBoundingClientRect();
  const left = clamp(box.left + xOf(grid, slot) * scale, 4, Math.max(innerWidth - size.width - 4, 4));
  const top = clamp(box.top + grid.head * scale, 4, Math.max(innerHeight - size.height - 4, 4));
  menu.style.left = `${left / scale}px`;
  menu.style.top = `${top / scale}px`;
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
  const items = [...itemsOf(grid, slot), ...more].map(([label, act]) => {
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
 * Return the fields that compare with a value, as they fit the type of a column.
 * @param {Column} column
 */
const comparison = ({ kind, type }) => {
  const operators = (OPERATORS[kind] ?? IN_ORDER).map((each) => h("option", {}, each));
  const operator = h("select", { "aria-label": "Comparison" }, ...operators);
  const field = {
    type: FIELDS[type] ?? "text",
    inputmode: kind === "number" ? "decimal" : null,
    size: "16",
    step: "any",
  };
  const value = h("input", { ...field, "aria-label": "Value" });
  const to = h("input", { ...field, "aria-label": "Upper value", hidden: true });
  operator.addEventListener("change", () => {
    value.hidden = BY_VALUE.includes(operator.value);
    to.hidden = operator.value !== "between";
  });
  return { operator, value, to };
};

/**
 * Return the list of a column's values with their counts, each to be ticked; `look` shows those with a text in them.
 * @param {Grid} grid
 * @param {Slot} slot
 */
const valueList = (grid, { index }) => {
  /** @type {Set<string | null>} */
  const chosen = new Set();
  const { rev } = grid.state;
  const list = h("div", { class: "values", role: "group", "aria-label": "Values" });
  const note = h("div", { class: "dim" });
  const asking = new AbortController();
  /** @param {[value: string | null, count: number]} entry */
  const line = ([value, count]) => {
    const box = h("input", { type: "checkbox", checked: chosen.has(value) });
    box.addEventListener("change", () => (box.checked ? chosen.add(value) : chosen.delete(value)));
    const text = value === null ? h("i", { class: "dim" }, "missing") : h("span", { dir: "auto" }, value || "(empty)");
    return h("label", {}, box, text, h("span", { class: "dim" }, number(count)));
  };
  /** @param {string} search */
  const look = async (search) => {
    note.textContent = "Counting…";
    try {
      const answer = await grid.link.ask("values", { column: index, search, rev }, { signal: asking.signal });
      list.replaceChildren(...(answer?.values ?? []).map(line));
      note.textContent = answer ? answer.note : "";
    } catch (error) {
      note.textContent = error.stopped ? "" : error.message;
    }
  };
  return { chosen, look, stop: () => asking.abort(), element: h("div", { class: "ticks" }, list, note) };
};

/**
 * Open the form of a column's filter.
 * @param {Grid} grid
 * @param {Slot} slot
 */
export const openFilter = (grid, slot) => {
  const column = grid.column(slot);
  const { operator, value, to } = comparison(column);
  const values = valueList(grid, slot);
  const close = () => {
    values.stop();
    closeMenu(grid);
  };
  /** @param {Event} event */
  const onsubmit = async (event) => {
    event.preventDefault();
    close();
    const isByValue = BY_VALUE.includes(operator.value);
    if (values.chosen.size) await filterBy(grid, { column: slot.index, op: "in", values: [...values.chosen] });
    else if (value.value || isByValue || (column.kind === "text" && operator.value === "=")) {
      await filterBy(grid, { column: slot.index, op: operator.value, value: value.value, to: to.value });
    }
  };
  const submit = h("button", { type: "submit", class: "primary" }, "Filter");
  const cancel = h("button", { type: "button", onclick: close }, "Cancel");
  const title = h("div", { class: "wide" }, h("b", {}, column.name), h("span", { class: "dim" }, ` ${column.type}`));
  const fields = [title, operator, value, to, values.element, submit, cancel];
  const properties = { class: "menu form", popover: "manual", "aria-label": `Filter ${column.name}`, onsubmit };
  const menu = h("form", properties, ...fields);
  placeMenu(grid, slot, menu);
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  const search = later(TYPED_MS, () => values.look(value.value));
  value.addEventListener("input", () => column.kind === "text" && search());
  values.look("");
  value.focus();
};
