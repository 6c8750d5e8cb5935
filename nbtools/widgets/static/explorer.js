// The explorer: the grid, and, folded until they are asked for: the source, its SQL, charts, a script, a summary.
import { codeBar } from "./explorer/code.js";
import { sourcePanel } from "./explorer/source.js";
import { createGrid } from "./grid.js";
import { Link } from "./link.js";
import { loadPart } from "./part.js";
import { closable, h, later, mount, onChange, showError } from "./shared.js";

/** @import { GridDoor } from "./grid.js" */
/** @import { Item } from "./grid/menus.js" */
/** @import { Slot } from "./grid/state.js" */
/** @import { Model, View } from "./shared.js" */

const LOOK_MS = 5_000;
const SETTLED_MS = 400;

/**
 * Return what says that the source has changed, and look now and then whether it has.
 * @param {Link} link
 * @param {() => GridDoor} grid
 */
const staleNotice = (link, grid) => {
  const reload = async () => {
    /** @type {string[] | undefined} */
    const columns = await grid().change("reload", {}, "Reading it again");
    notice.hidden = true;
    if (!columns?.length) return;
    notice.after(closable("", `Gone from the source: ${columns.join(", ")}. Sorts and filters by them too.`));
  };
  const button = h("button", { onclick: reload }, "Reload");
  const properties = { class: "notice stale", hidden: true, role: "status" };
  const notice = h("div", properties, "The source has changed since it was read.", button);
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
 * Return a button that folds a panel out and in.
 * @param {string} name
 * @param {string} label
 * @param {HTMLElement} panel
 * @param {() => unknown} open
 */
const foldButton = (name, label, panel, open) => {
  const onclick = () => {
    panel.hidden = !panel.hidden;
    button.ariaExpanded = String(!panel.hidden);
    if (!panel.hidden) open();
  };
  const button = h("button", { class: name, "aria-expanded": "false", onclick }, label);
  return button;
};

/**
 * Return a panel whose content is a part of the widget, the button that folds it, and what opens it.
 * @param {string} label
 * @param {() => Promise<{ elements: HTMLElement[], open: (column?: string) => void, renew?: () => void }>} create
 */
const partPanel = (label, create) => {
  const panel = h("div", { class: "panel", hidden: true, role: "region", "aria-label": label });
  /** @type {ReturnType<typeof create> | null} */
  let part = null;
  /** @param {string} [column] to begin with */
  const open = async (column) => {
    part ??= create();
    const { elements, open: begin } = await part;
    if (!panel.childElementCount) panel.append(...elements);
    begin(column);
  };
  const renew = async () => {
    if (!panel.hidden) (await part)?.renew?.();
  };
  const button = foldButton(`to-${label.toLowerCase()}`, label, panel, open);
  /** @param {string} column */
  const openWith = (column) => {
    panel.hidden = false;
    button.ariaExpanded = "true";
    open(column);
  };
  return { panel, button, openWith, renew };
};

/**
 * Return the button that takes back what was done last.
 * @param {Model} model
 * @param {() => GridDoor} grid
 * @param {AbortSignal | undefined} signal
 */
const undoButton = (model, grid, signal) => {
  const onclick = async () => {
    const done = await grid().change("undo", {}, "Undoing");
    if (done) grid().say(`Undone: ${done}.`);
  };
  const button = h("button", { class: "undo-step", onclick }, "Undo");
  const show = () => {
    const done = model.get("undo");
    button.hidden = !done;
    button.title = `Undo ${done}`;
  };
  show();
  onChange(model, ["undo"], show, signal);
  return button;
};

/**
 * Return what gives the items of a column's menu that an explorer has beside those of a grid.
 * @param {Model} model
 * @param {Link} link
 * @param {() => GridDoor} grid
 * @param {HTMLElement} summary
 * @param {(column: string) => unknown} group
 * @param {(column: string) => unknown} draw
 * @returns {(slot: Slot) => Item[]}
 */
const columnItems = (model, link, grid, summary, group, draw) => {
  /** @param {string} name @param {string} does @param {Slot} slot */
  const use = async (name, does, slot) => (await loadPart(link, `explorer/${name}`))[does](model, link, grid(), slot);
  return (slot) => {
    const column = model.get("state").columns[slot.index];
    const summarise = async () =>
      (await loadPart(link, "explorer/summary")).summarise(summary, grid(), column, slot.index);
    /** @type {Item[]} */
    const looks = [
      ["Chart", () => draw(column.name)],
      ["Summary", summarise],
    ];
    if (model.get("read_only")) return looks;
    return [
      ["Clean…", () => use("clean", "openForm", slot)],
      ["Group rows", () => group(column.name)],
      ["Hide", () => use("columns", "hide", slot)],
      ["Columns…", () => use("columns", "openForm", slot)],
      ...looks,
    ];
  };
};

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const root = mount(el, model, "Data explorer", signal);
    const link = new Link(model, root, signal);
    const summary = h("div", { class: "summary", hidden: true, role: "region", "aria-label": "In full" });
    const pins = h("div", { class: "pins" });
    const door = () => grid;
    const stale = staleNotice(link, door);
    const source = sourcePanel(model, link, door);
    const code = codeBar(root, model, link, source.connection, door);
    root.append(stale.notice);
    const chart = partPanel("Chart", async () =>
      (await loadPart(link, "explorer/chart")).chartPanel(model, link, grid, root),
    );
    const group = partPanel("Group", async () => (await loadPart(link, "explorer/group")).groupPanel(model, grid));
    const script = partPanel("Script", async () => (await loadPart(link, "explorer/script")).scriptPanel(link));
    /** @param {number} row */
    const openRow = async (row) => (await loadPart(link, "explorer/row")).showRow(model, link, grid, summary, row);
    /** @type {GridDoor} */
    const grid = createGrid(root, model, link, signal, {
      more: columnItems(model, link, door, summary, group.openWith, chart.openWith),
      keepWords: source.keepWords,
      openRow,
    });
    const toSource = foldButton("to-source", "", source.panel, source.open);
    toSource.ariaLabel = "Source";
    toSource.append(grid.title);
    grid.bar.prepend(toSource);
    const toSql = foldButton("to-sql", "SQL", code.element, () => code.area.focus());
    grid.bar.append(undoButton(model, door, signal), toSql, group.button, chart.button, script.button);
    grid.bar.after(source.panel, code.element, group.panel);
    root.append(summary, chart.panel, script.panel, pins);

    const paintPins = async () => {
      if (!model.get("pinned").length && !pins.childElementCount) return;
      (await loadPart(link, "explorer/chart")).showPins(model, link, pins, grid);
    };
    onChange(model, ["sql"], code.show, signal);
    for (const each of [chart, group]) onChange(model, ["sql"], each.renew, signal);
    onChange(model, ["sql", "connection"], source.show, signal);
    onChange(model, ["pinned"], paintPins, signal);
    root.addEventListener("focusin", later(SETTLED_MS, stale.look));
    const timer = setInterval(() => {
      if (root.isConnected && root.offsetParent) stale.look();
    }, LOOK_MS);
    signal?.addEventListener("abort", () => clearInterval(timer));
    code.show();
    if (model.get("problem")) {
      showError(grid.error, { message: model.get("problem"), hint: "Choose above how it is read." });
      toSource.click();
    }
    paintPins();
    link.ready();
  },
};
