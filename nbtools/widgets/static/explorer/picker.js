// What there is to explore: frames, files by their folders, and the tables of a connection, with their columns.
import { h, runByKey, showError } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Link } from "../link.js" */
/** @typedef {[name: string, type: string, meaning?: string]} NamedColumn */
/** @typedef {{ name: string, columns: NamedColumn[] | null }} Source columns are asked for where they are null */

/**
 * Return sources by where they are: frames and tables under no folder, files under theirs.
 * @param {Source[]} sources
 */
export const byFolder = (sources) => {
  /** @type {Map<string, Source[]>} */
  const folders = new Map();
  for (const source of sources) {
    const path = /^'(.*\/)?[^/]*'$/.exec(source.name);
    const folder = path ? (path[1] ?? "./") : "";
    folders.set(folder, [...(folders.get(folder) ?? []), source]);
  }
  return [...folders];
};

/** @param {NamedColumn[]} columns */
const columnList = (columns) =>
  h(
    "ul",
    {},
    ...columns.map(([name, type, meaning]) =>
      h("li", {}, name, " ", h("span", { class: "dim" }, [type, meaning].filter(Boolean).join(" · "))),
    ),
  );

/**
 * @param {Source} source
 * @param {(name: string) => Promise<NamedColumn[]>} describe
 * @param {(name: string) => void} open
 */
const leaf = ({ name, columns }, describe, open) => {
  const details = h("details", {}, h("summary", { class: "dim" }, columns ? `${columns.length} columns` : "columns"));
  const fillIn = async () => {
    if (!details.open || details.childElementCount > 1) return;
    const line = h("div", {});
    details.append(line);
    try {
      line.replaceChildren(columnList(columns ?? (await describe(name))));
    } catch (error) {
      showError(line, error);
    }
  };
  details.addEventListener("toggle", fillIn);
  const label = name.replace(/^'(?:.*\/)?([^/]*)'$/, "$1");
  const properties = { class: "plain", title: name, "aria-label": `Open ${name}`, onclick: () => open(name) };
  const button = h("button", properties, label);
  return h("div", { class: "leaf" }, button, details);
};

/**
 * Return the fields that open another source, and the tree of all that can be opened.
 * @param {HTMLSelectElement} connection
 * @param {Link} link
 * @param {GridDoor} grid
 * @param {(text: string) => void} renew gets what could not be opened
 */
export const sourcePicker = (connection, link, grid, renew) => {
  const names = h("datalist", { id: `sources-${Math.random().toString(36).slice(2)}` });
  const label = "File or frame";
  const field = { type: "text", list: names.id, size: "18", "aria-label": label, placeholder: label, class: "source" };
  const input = h("input", field);
  const tree = h("div", { class: "sources", role: "group", "aria-label": "What there is" });
  /** @param {string} name */
  const open = async (name) => {
    const text = `SELECT * FROM ${name}`;
    await grid.change("query", { text, connection: connection.value }, "Opening");
    if (grid.error.childElementCount) renew(text);
    else input.value = "";
  };
  /** @param {string} name */
  const describe = (name) => link.ask("described", { source: name, connection: connection.value });
  const offer = async () => {
    try {
      /** @type {Source[]} */
      const sources = await link.ask("sources", { connection: connection.value });
      names.replaceChildren(...sources.map(({ name }) => h("option", { value: name })));
      const groups = byFolder(sources).map(([folder, each]) => {
        const title = folder || (connection.value ? `tables of ${connection.value}` : "DataFrames");
        const leaves = each.map((source) => leaf(source, describe, open));
        return h("details", { open: sources.length <= 40 }, h("summary", {}, title), ...leaves);
      });
      tree.replaceChildren(...(groups.length ? groups : [h("span", { class: "dim" }, "Nothing here can be opened.")]));
    } catch (error) {
      showError(grid.error, error);
    }
  };
  connection.addEventListener("change", offer);
  runByKey(input, () => input.value.trim() && open(input.value.trim()));
  offer();
  return [h("div", { class: "bar opener" }, connection, input, names), tree];
};
