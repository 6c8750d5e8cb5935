// The summary of a column: its profile as a table.
import { h, number, percent } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Column, Facts } from "../grid/state.js" */

/**
 * Return the lines of a summary, each with its label.
 * @param {Facts} facts
 * @returns {[label: string, value: string][]}
 */
export const summaryLines = ({ rows, of, missing, distinct, least, greatest, top }) => {
  /** @param {number} count */
  const share = (count) => `${number(count)} (${percent(count, rows, 1)})`;
  return [
    ["rows", rows < of ? `${number(rows)} of ${number(of)}, a sample` : number(rows)],
    ["missing", share(missing)],
    ["distinct (approx.)", number(distinct)],
    ["min", least ?? ""],
    ["max", greatest ?? ""],
    ...top.map(([label, count]) => /** @type {[string, string]} */ ([label, share(count)])),
  ];
};

/**
 * Show the summary of a column.
 * @param {HTMLElement} element
 * @param {GridDoor} grid
 * @param {Column} column
 * @param {number} index
 */
export const summarise = async (element, grid, { name, type, means }, index) => {
  element.hidden = false;
  const facts = await grid.facts(index);
  const onclick = () => {
    element.hidden = true;
    grid.focus();
  };
  const close = h("button", { onclick }, "Close");
  const title = h("span", { class: "title" }, name);
  const bar = h(
    "div",
    { class: "bar" },
    title,
    h("span", { class: "dim" }, means ? `${type} · ${means}` : type),
    h("span", { class: "grow" }),
    close,
  );
  element.replaceChildren(bar, facts && !facts.failed ? summaryTable(facts) : noProfile(facts?.failed));
  close.focus();
};

/** @param {Facts} facts */
const summaryTable = (facts) => {
  const rows = summaryLines(facts).map(([label, value]) =>
    h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "mono" }, value)),
  );
  return h("table", {}, h("tbody", {}, ...rows));
};

const noProfile = (reason = "No profile yet.") => h("div", { class: "notice is-error" }, reason);
