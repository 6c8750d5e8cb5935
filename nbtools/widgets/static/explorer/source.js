// Where the rows come from: another source, and how its files are read.
import { loadPart } from "../part.js";
import { h } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */

/**
 * Return the panel of the source, folded.
 * @param {Model} model
 * @param {Link} link
 * @param {() => GridDoor} grid
 */
export const sourcePanel = (model, link, grid) => {
  /** @type {string[]} */
  const connections = model.get("connections");
  const names = connections.map((name) => h("option", {}, name));
  const select = { "aria-label": "Connection", class: "connection", hidden: !connections.length };
  const connection = h("select", select, h("option", { value: "" }, "files, frames"), ...names);
  const options = h("div", { class: "bar options", hidden: true });
  /** @param {string} [text] of a query that could not be asked; of what is shown without it */
  const renew = async (text) => {
    const { showOptions } = await loadPart(link, "explorer/options");
    await showOptions(options, link, grid(), text);
  };
  const region = { class: "from", hidden: true, role: "region", "aria-label": "Source" };
  const panel = h("div", region, options);
  const open = async () => {
    renew();
    if (panel.childElementCount > 1) return;
    const { sourcePicker } = await loadPart(link, "explorer/picker");
    panel.prepend(...sourcePicker(connection, link, grid(), renew));
  };
  const show = () => {
    connection.value = model.get("connection");
    if (!panel.hidden) renew();
  };
  show();
  const keepWords = () => grid().change("rewrite", { changes: { nullstr: "" } }, "Reading it again");
  return { panel, connection, show, open, keepWords };
};
