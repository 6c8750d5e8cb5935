// Cells below others, which are not run: a question about an error, and what a widget offers.
import { applied, cellsOf, errorOf } from "./cells.js";
import { evaluated } from "./kernel.js";

// What does nothing where nbtools is not loaded, and tells the magic's name where a model is set up.
const MAGIC = "getattr(get_ipython().meta.get('nbtools'), 'agent_magic', lambda: None)()";

/**
 * Return the name of the magic that asks the agent; `null` where none is set up.
 * @param {any} kernel
 * @returns {Promise<string | null>}
 */
const magicOf = async (kernel) => {
  const answer = await evaluated(kernel, MAGIC);
  return /^'(\w+)'$/.exec(answer?.data?.["text/plain"] ?? "")?.[1] ?? null;
};

/** The cells that others came from. @type {WeakMap<object, object>} */
const origins = new WeakMap();

/**
 * Insert a cell below another, and below those that came from it before: they stand in the order in which they came.
 * @param {any} panel
 * @param {any} cell
 * @param {string} source
 */
const insertBelow = (panel, { model }, source) => {
  const cells = cellsOf(panel);
  let at = cells.indexOf(model);
  while (origins.get(cells[at + 1]) === model) at += 1;
  at = applied(panel, /** @type {any} */ ({ action: "insert", kind: "code", cell: cells[at].id, source })) ?? at;
  origins.set(cellsOf(panel)[at], model);
  panel.content.activeCellIndex = at;
  panel.content.mode = "edit";
};

/**
 * Insert what a widget offers below its cell. Lab's own commands ask, where a notebook is not trusted, and need an
 * editor, which a new cell may not have yet.
 * @param {any} tracker
 */
export const takeCells = (tracker) =>
  document.addEventListener("nbtools", (/** @type {any} */ event) => {
    const panel = tracker.currentWidget;
    const cell = panel?.content.widgets.find((/** @type {any} */ { node }) => node.contains(event.target));
    if (!cell) return;
    event.preventDefault();
    insertBelow(panel, cell, event.detail);
  });

/**
 * Return the cell that asks about an error.
 * @param {string} magic
 * @param {string} id
 * @param {{ ename: string, evalue: string }} error
 */
export const questionOf = (magic, id, { ename, evalue }) => {
  // An @ would mention something of the notebook.
  const words = `${ename}: ${evalue.split("\n", 1)[0].slice(0, 300)}`.replaceAll("@", " at ");
  return `%%${magic}\nThe cell above (id ${id}) failed: ${words}\nSay why, and propose a fix.`;
};

/**
 * Offer it below an error, for as long as that is there.
 * @param {any} panel
 * @param {any} cell
 */
const offer = async (panel, cell) => {
  const { kernel } = panel.sessionContext.session ?? {};
  const error = errorOf(cell.model);
  const magic = error && kernel && (await magicOf(kernel).catch(() => null));
  const area = cell.outputArea?.widgets.at(-1)?.node;
  if (!magic || !area || cell.isDisposed) return;
  const button = document.createElement("button");
  button.className = "nbt-ask jp-mod-styled";
  button.textContent = "Ask the agent";
  button.dataset.lmSuppressShortcuts = "true";
  button.onclick = () => insertBelow(panel, cell, questionOf(magic, cell.model.id, error));
  area.append(button);
};

/**
 * Offer it for every cell that fails.
 * @param {any} tracker
 * @param {any} actions
 */
export const offerAgent = (tracker, actions) => {
  actions.executed.connect((/** @type {any} */ _, /** @type {any} */ { notebook, cell, success }) => {
    const panel = tracker.find((/** @type {any} */ each) => each.content === notebook);
    if (!success && panel) void offer(panel, cell);
  });
};
