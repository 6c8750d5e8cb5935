// What changes which rows there are, and their order: sorting and filters.
import { h, number, showError } from "../shared.js";

/** @import { Grid } from "./state.js" */

// A bar that comes and goes at once would only flicker.
const BAR_AFTER_MS = 120;

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
  const begun = performance.now();
  const clock = h("span", { class: "dim" });
  const timer = setInterval(() => {
    const seconds = Math.floor((performance.now() - begun) / 1000);
    clock.textContent = seconds ? `${seconds} s` : "";
    if (!work.hidden && work.contains(bar)) return;
    const stop = h("button", { class: "stop danger", onclick: () => mine.abort() }, "Stop");
    work.replaceChildren(h("span", {}, `${label}…`), bar, clock, stop);
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
    clearInterval(timer);
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
export const sortBy = async (grid, position, isDescending) => {
  const { name } = grid.column(grid.slots[position]);
  /** @type {[string, boolean][]} */
  const order = isDescending === null ? [] : [[name, isDescending]];
  grid.nextOrder = order;
  await change(grid, "sort", { order }, `Sorting by ${name}`);
  if (grid.nextOrder !== order) return;
  grid.nextOrder = null;
  const direction = isDescending ? "descending" : "ascending";
  grid.say(grid.orderOf(name) ? `Sorted by ${name}, ${direction}.` : "In the original order.");
};

/**
 * Sort by a column: ascending, descending, in the original order, in turn.
 * @param {Grid} grid
 * @param {number} position of the column
 */
export const toggleSort = (grid, position) => {
  const order = grid.nextOrderOf(grid.column(grid.slots[position]).name);
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
  chips.replaceChildren(...buttons);
};
