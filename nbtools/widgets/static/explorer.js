// The explorer: the grid, the SQL of what it shows, a summary of a column, charts, a script, and code to go on with.
import { chartPanel } from "./explorer/chart.js";
import { codeBar } from "./explorer/code.js";
import { scriptPanel } from "./explorer/script.js";
import { summarise } from "./explorer/summary.js";
import { createGrid } from "./grid.js";
import { Link } from "./link.js";
import { h, later, mount, onChange, showError } from "./shared.js";

/** @import { GridDoor } from "./grid.js" */
/** @import { Model, Picture, View } from "./shared.js" */

const LOOK_MS = 5_000;
const SETTLED_MS = 400;

/**
 * Return what says that the source has changed, and look now and then whether it has.
 * @param {Link} link
 * @param {() => GridDoor} grid
 */
const staleNotice = (link, grid) => {
  const reload = async () => {
    await grid().change("reload", {}, "Reading it again");
    notice.hidden = true;
  };
  const button = h("button", { onclick: reload }, "Reload");
  const message = "The source has changed since it was read.";
  const notice = h("div", { class: "notice stale", hidden: true, role: "status" }, message, button);
  // One question at a time: while a cell runs, they would pile up.
  let isLooking = false;
  const look = async () => {
    if (document.hidden || isLooking) return;
    isLooking = true;
    try {
      notice.hidden = !(await link.ask("check", {}, { quick: true }));
    } catch {
      // The kernel is gone, which another notice says.
    } finally {
      isLooking = false;
    }
  };
  return { notice, look };
};

/**
 * Return the fields that open another source: its connection, and its name with what is offered.
 * @param {Model} model
 * @param {Link} link
 * @param {() => GridDoor} grid
 */
const sourcePicker = (model, link, grid) => {
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
    input.value = "";
  };
  input.addEventListener("focus", offer);
  input.addEventListener("keydown", ({ key }) => {
    if (key === "Enter" && input.value.trim()) open();
  });
  return { connection, input, names };
};

/**
 * Show the charts that are pinned.
 * @param {Model} model
 * @param {Link} link
 * @param {HTMLElement} element
 * @param {HTMLElement} after gets the focus after the last one is gone
 */
const showPins = (model, link, element, after) => {
  /** @type {{ uri: string, caption: string }[]} */
  const pinned = model.get("pinned");
  const figures = pinned.map(({ uri, caption }, index) => {
    const unpin = async () => {
      await link.ask("unpin", { place: index });
      (element.querySelector("button") ?? after).focus();
    };
    const button = h("button", { "aria-label": `Unpin ${caption}`, onclick: unpin }, "Unpin");
    const text = h("span", { class: "dim" }, caption);
    const line = h("figcaption", { class: "bar" }, text, h("span", { class: "grow" }), button);
    return h("figure", {}, h("img", { src: uri, alt: caption }), line);
  });
  element.replaceChildren(...figures);
};

/**
 * Return a button that opens and closes a panel.
 * @param {string} name
 * @param {string} label
 * @param {() => { panel: HTMLElement, open: () => void }} target
 */
const toggleButton = (name, label, target) => {
  const onclick = () => {
    const { panel, open } = target();
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    if (!panel.hidden) open();
  };
  const button = h("button", { class: name, "aria-expanded": "false", onclick }, label);
  return button;
};

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const root = mount(el, model, "Data explorer", signal);
    const link = new Link(model, root, signal);
    const summary = h("div", { class: "summary", hidden: true, role: "region", "aria-label": "Summary of a column" });
    const pins = h("div", { class: "pins" });
    const stale = staleNotice(link, () => grid);
    const picker = sourcePicker(model, link, () => grid);
    const code = codeBar(root, model, link, picker.connection, () => grid);
    code.acts.append(
      toggleButton("to-chart", "Chart", () => chart),
      toggleButton("to-script", "Script", () => script),
    );
    root.append(stale.notice, code.element);
    /** @type {GridDoor} */
    const grid = createGrid(root, model, link, signal, (slot) => [
      ["Summary", () => summarise(summary, grid, model.get("state").columns[slot.index], slot.index)],
    ]);
    grid.bar.prepend(picker.connection, picker.input, picker.names);
    const chart = chartPanel(model, link, grid, root);
    const script = scriptPanel(link);
    root.append(summary, chart.panel, script.panel, pins);

    const paintPins = () => showPins(model, link, pins, code.area);
    const showConnection = () => {
      picker.connection.value = model.get("connection");
    };
    onChange(model, ["sql"], code.show, signal);
    onChange(model, ["sql"], chart.renew, signal);
    onChange(model, ["connection"], showConnection, signal);
    onChange(model, ["pinned"], paintPins, signal);
    root.addEventListener("focusin", later(SETTLED_MS, stale.look));
    const timer = setInterval(() => {
      if (root.isConnected && root.offsetParent) stale.look();
    }, LOOK_MS);
    signal?.addEventListener("abort", () => clearInterval(timer));
    code.show();
    paintPins();
    link.ready();
  },
};
