// Cells below others, which are not run: a question about an error, and what a widget offers.
import { errorOf } from "./cells.js";
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

/**
 * Insert a cell below another one, and go there.
 * @param {any} content
 * @param {any} cell
 * @param {string} source
 */
const insertBelow = (content, cell, source) => {
  const at = content.widgets.indexOf(cell) + 1;
  content.model.sharedModel.insertCell(at, { cell_type: "code", source, metadata: {} });
  content.activeCellIndex = at;
  content.mode = "edit";
};

/**
 * Insert what a widget offers below its cell.
 * @param {any} tracker
 */
export const takeCells = (tracker) => {
  document.addEventListener("nbtools-cell", (event) => {
    const node = event.target instanceof Element && event.target.closest(".jp-Cell");
    const panel = tracker.find((/** @type {any} */ { content }) => content.node.contains(node || null));
    const cell = panel?.content.widgets.find((/** @type {any} */ each) => each.node === node);
    if (!cell) return;
    event.preventDefault();
    insertBelow(panel.content, cell, /** @type {CustomEvent<string>} */ (event).detail);
  });
};

/**
 * Return the cell that asks about an error.
 * @param {string} magic
 * @param {string} id
 * @param {{ ename: string, evalue: string }} error
 */
export const questionOf = (magic, id, { ename, evalue }) => {
  // An @ would mention something of the notebook.
  const words = `${ename}: ${evalue.split("\n", 1)[0].slice(0, 300)}`.replaceAll("@", " at ");
  return `%%${magic}\nThe cell above (id ${id}) failed: ${words}\nSay why, and propose what mends it.`;
};

/**
 * Offer it below an error, for as long as that is there.
 * @param {any} content
 * @param {any} cell
 * @param {any} kernel
 */
const offer = async (content, cell, kernel) => {
  const error = errorOf(cell.model);
  const magic = error && kernel && (await magicOf(kernel).catch(() => null));
  const area = cell.outputArea?.widgets.at(-1)?.node;
  if (!magic || !area || cell.isDisposed) return;
  const button = document.createElement("button");
  button.className = "nbt-ask jp-mod-styled";
  button.textContent = "Ask the agent";
  button.dataset.lmSuppressShortcuts = "true";
  button.onclick = () => {
    insertBelow(content, cell, questionOf(magic, cell.model.id, error));
  };
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
    if (!success && panel) void offer(notebook, cell, panel.sessionContext.session?.kernel);
  });
};
