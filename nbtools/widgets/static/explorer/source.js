// Where the rows come from: another source, and how its files are read.
import { loadPart } from "../part.js";
import { h, showError } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */

/**
 * Return the fields that open another source: its connection, and its name with what is offered.
 * @param {Model} model
 * @param {Link} link
 * @param {() => GridDoor} grid
 * @param {(text: string) => void} renew gets what was opened, or could not be
 */
const sourcePicker = (model, link, grid, renew) => {
  /** @type {string[]} */
  const connections = model.get("connections");
  const options = connections.map((name) => h("option", {}, name));
  const select = { "aria-label": "Connection", class: "connection", hidden: !connections.length };
  const connection = h("select", select, h("option", { value: "" }, "files, frames"), ...options);
  connection.value = model.get("connection");
  const names = h("datalist", { id: `sources-${Math.random().toString(36).slice(2)}` });
  const input = h("input", {
    type: "text",
    list: names.id,
    size: "18",
    "aria-label": "File or frame",
    placeholder: "File or frame",
    class: "source",
  });
  /** The connection whose tables are offered. @type {string | null} */
  let listed = null;
  const offer = async () => {
    const { value } = connection;
    if (listed === value) return;
    listed = value;
    try {
      const sources = await link.ask("sources", { connection: value });
      names.replaceChildren(...sources.map((/** @type {string} */ each) => h("option", { value: each })));
    } catch (error) {
      listed = null;
      showError(grid().error, error);
    }
  };
  const open = async () => {
    const text = `SELECT * FROM ${input.value.trim()}`;
    await grid().change("query", { text, connection: connection.value }, "Opening");
    if (grid().error.childElementCount) renew(text);
    else input.value = "";
  };
  input.addEventListener("focus", offer);
  input.addEventListener("keydown", ({ key }) => {
    if (key === "Enter" && input.value.trim()) open();
  });
  return { connection, input, names };
};

/**
 * Return the panel of the source, folded.
 * @param {Model} model
 * @param {Link} link
 * @param {() => GridDoor} grid
 */
export const sourcePanel = (model, link, grid) => {
  const options = h("div", { class: "bar options", hidden: true });
  /** @param {string} [text] of a query that could not be asked; of what is shown without it */
  const renew = async (text) => {
    const { showOptions } = await loadPart(link, "explorer/options");
    await showOptions(options, link, grid(), text);
  };
  const { connection, input, names } = sourcePicker(model, link, grid, renew);
  const opener = h("div", { class: "bar opener" }, connection, input, names);
  const region = { class: "from", hidden: true, role: "region", "aria-label": "Source" };
  const panel = h("div", region, opener, options);
  const show = () => {
    connection.value = model.get("connection");
    if (!panel.hidden) renew();
  };
  const keepWords = () => grid().change("rewrite", { changes: { nullstr: "" } }, "Reading it again");
  return { panel, connection, show, open: () => renew(), keepWords };
};
