// Profiles of columns: asked for one at a time while no page is waited for, and drawn in the header.
import { few, fill, h, number, percent, svg } from "../shared.js";

/** @import { Facts, Grid, Slot } from "./state.js" */

// Above this many rows Python estimates how many values differ.
const MOST_COUNTED = 200_000;
const PAUSE_MS = 60;
const MOST_TRIES = 200;
const BARS_HEIGHT = 24;
const FREQUENT = 0.005;

/** @type {Facts} */
const NOTHING = { rows: 0, of: 0, missing: 0, distinct: 0, least: null, greatest: null, bins: [], top: [] };

/**
 * Return whether a profile would have to wait.
 * @param {Grid} grid
 */
const isOccupied = (grid) => grid.profiling || grid.busy || grid.isAsking || !grid.state.whole;

/**
 * Ask for the first profile that is missing in sight.
 * @param {Grid} grid
 * @param {Slot[]} slots
 */
export const profileNext = (grid, slots) => {
  if (isOccupied(grid)) return;
  const next = slots.find(({ index }) => !grid.profiles.has(index));
  if (next) setTimeout(() => profile(grid, next.index), PAUSE_MS);
};

/**
 * Profile a column; exactly means from all rows, and a second wish for that stops it.
 * @param {Grid} grid
 * @param {number} index
 * @param {boolean} isExact
 */
export const profile = async (grid, index, isExact = false) => {
  if (grid.busy || !grid.state.whole) return;
  if (!isExact && (isOccupied(grid) || grid.profiles.has(index))) return;
  grid.profiling?.stop.abort();
  if (grid.profiling?.index === index) return;
  const { rev } = grid.state;
  const mine = { stop: new AbortController(), index: isExact ? index : undefined };
  grid.profiling = mine;
  if (isExact) grid.paint();
  const facts = await askForFacts(grid, { column: index, exact: isExact, rev }, mine.stop.signal);
  if (grid.profiling === mine) grid.profiling = null;
  if (facts && rev === grid.state.rev) addFacts(grid, index, facts, isExact);
  grid.paint();
};

/**
 * @param {Grid} grid
 * @param {number} index
 * @param {Facts} facts
 * @param {boolean} isExact
 */
const addFacts = (grid, index, facts, isExact) => {
  grid.profiles.set(index, facts);
  if (isExact && !facts.failed) grid.say(`Profile of ${grid.column({ index }).name} from all rows.`);
};

/**
 * Return a profile, or why there is none; null where it was stopped or belongs to other rows.
 * @param {Grid} grid
 * @param {object} request
 * @param {AbortSignal} signal
 * @returns {Promise<Facts | null>}
 */
const askForFacts = async (grid, request, signal) => {
  try {
    return await grid.link.ask("profile", request, { signal });
  } catch (error) {
    return error.stopped ? null : { ...NOTHING, failed: error.message };
  }
};

/**
 * Return the profile of a column; it waits behind those of the columns in sight.
 * @param {Grid} grid
 * @param {number} index
 */
export const waitForProfile = async (grid, index) => {
  for (let tries = 0; tries < MOST_TRIES && !grid.profiles.has(index); tries++) {
    await profile(grid, index);
    if (!grid.profiles.has(index)) await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return grid.profiles.get(index);
};

/**
 * Return what the header says below the drawing, and the longer form of it.
 * @param {Facts} facts
 * @param {boolean} isReading all rows are being read for it
 */
export const noteOf = (facts, isReading) => {
  const { rows, of, missing } = facts;
  const share = rows ? missing / rows : 0;
  const part = share < 0.001 ? number(missing) : percent(missing, rows, share < 0.1 ? 1 : 0);
  const notes = [missing && `${part} missing`, isReading ? "reading all" : rows < of && `${few(rows)} of ${few(of)}`];
  const sample = `from ${number(rows)} of ${number(of)} rows; a click reads all`;
  return { note: notes.filter(Boolean).join(", "), basis: rows < of ? sample : `from all ${number(of)} rows` };
};

/**
 * Return how many values differ, in words.
 * @param {Facts} facts
 */
export const distinctOf = ({ rows, missing, distinct }) => {
  if (rows <= missing) return "";
  if (distinct >= rows - missing) return "all different";
  return `${rows > MOST_COUNTED ? "≈ " : ""}${number(distinct)} different`;
};

/**
 * @param {Grid} grid
 * @param {Slot} slot
 * @param {Facts} facts
 * @param {string} basis
 */
const bars = (grid, slot, facts, basis) => {
  const most = Math.max(...facts.bins.map((each) => each[2]), 1);
  const wide = 100 / facts.bins.length;
  const brush = grid.brush?.index === slot.index ? grid.brush : null;
  /** @param {number} at */
  const isBrushed = (at) => brush && at >= Math.min(brush.from, brush.to) && at <= Math.max(brush.from, brush.to);
  const drawn = facts.bins.map(([, , size, label], at) => {
    const height = (BARS_HEIGHT * size) / most;
    const box = { x: at * wide, width: Math.max(wide - 0.8, 0.5), y: BARS_HEIGHT - height, height };
    return svg("rect", { ...box, class: isBrushed(at) && "brushed" }, svg("title", {}, `${label}: ${number(size)}`));
  });
  const label = `${facts.least} to ${facts.greatest}, ${basis}`;
  const view = { viewBox: `0 0 100 ${BARS_HEIGHT}`, preserveAspectRatio: "none" };
  return svg("svg", { class: "bars", ...view, role: "img", "aria-label": label }, ...drawn);
};

/**
 * Return up to two lines: the frequent values, and how many differ where fewer than two are frequent.
 * @param {Facts} facts
 */
export const mostFrequent = (facts) => {
  const { top, rows } = facts;
  const frequent = top.filter(([, size]) => size > 1 && size / rows >= FREQUENT).slice(0, 2);
  const lines = frequent.map(([label, size]) => {
    const style = `--share:${((100 * size) / rows).toFixed(1)}%`;
    const title = `${label}: ${number(size)}`;
    const share = h("span", { class: "dim" }, percent(size, rows, 0));
    return h("div", { class: "top", style, "data-top": label, title }, h("span", {}, label), share);
  });
  if (lines.length > 1 || (lines.length && facts.distinct < 2)) return lines;
  return [...lines, h("div", { class: "dim" }, distinctOf(facts))];
};

/**
 * Draw the profile of a column: bars of numbers and times that differ, else the two most frequent values, else how
 * many differ.
 * @param {Grid} grid
 * @param {Slot} slot
 */
export const sketch = (grid, slot) => {
  const facts = grid.profiles.get(slot.index);
  const element = h("div", { class: "sketch" });
  if (!facts || facts.failed) return fill(element, { title: facts?.failed }, []);
  const { note, basis } = noteOf(facts, grid.profiling?.index === slot.index);
  const isOne = facts.least === facts.greatest;
  if (facts.bins.length && isOne) element.append(h("div", { class: "dim" }, `only ${facts.least}`));
  else if (facts.bins.length) element.append(bars(grid, slot, facts, basis));
  else element.append(h("div", { class: "tops" }, ...mostFrequent(facts)));
  const isSample = facts.rows < facts.of;
  if (note) {
    element.append(h("div", { class: `note dim${isSample ? " exact" : ""}`, title: `${note}, ${basis}` }, note));
  }
  return element;
};
