// "Format SQL": the kernel's nbtools writes the query of a cell again, and the magic's line stays as it is.
import { evaluated } from "./kernel.js";
import { sqlOf } from "./parts.js";

/** @import { EditorView } from "@codemirror/view" */
/** @import { App, Tracker } from "./plugins.js" */

const COMMAND = "nbtools:format-sql";
const VERSION = "0.1.0";
const ASK = "__import__('nbtools.jupyter.sql_format', fromlist=['sql_format']).formatted_cell";

/**
 * Ask a kernel for a cell's text in which the query is formatted.
 * @param {any} kernel
 * @param {string} text
 * @returns {Promise<{ text?: string, problem?: string, version?: string }>}
 */
const formatted = async (kernel, text) => {
  const answer = await evaluated(kernel, `${ASK}(${JSON.stringify(text)}, get_ipython())`);
  if (answer?.status === "ok") return answer.data["application/json"];
  const problem = answer?.ename === "ModuleNotFoundError" ? "This kernel's Python has no nbtools." : answer?.evalue;
  return { problem: problem ?? "The kernel did not answer." };
};

/** Without it, a message is only counted at the bell. */
const TOAST = { autoClose: 9000 };

let isCompared = false;

/**
 * Say once that the kernel's nbtools and JupyterLab's are of two versions.
 * @param {string | undefined} version
 * @param {any} Notification
 */
export const compareVersions = (version, Notification) => {
  if (isCompared || version === undefined || version === VERSION) return;
  isCompared = true;
  Notification.info(`The kernel has nbtools ${version}, JupyterLab ${VERSION}: install the same for both.`, TOAST);
};

/**
 * Format the cell where a person is. The change is one step of undo.
 * @param {Tracker} tracker
 * @param {any} Notification
 */
const format = async ({ currentWidget, activeCell }, Notification) => {
  const kernel = currentWidget?.sessionContext.session?.kernel;
  /** @type {EditorView | undefined} */
  const editor = activeCell?.editor?.editor;
  const before = editor?.state.doc.toString() ?? "";
  if (!editor || !sqlOf(before)) return;
  const answer = kernel ? await formatted(kernel, before) : { problem: "Start a kernel first." };
  compareVersions(answer.version, Notification);
  const { text, problem } = answer;
  const isSame = editor.state.doc.toString() === before;
  if (text !== undefined && isSame) editor.dispatch({ changes: { from: 0, to: before.length, insert: text } });
  else Notification.warning(problem ?? "The cell has changed meanwhile: format it again.", TOAST);
};

/**
 * Add the command to the menu of cells, and to the keys.
 * @param {App} app
 * @param {Tracker} tracker
 * @param {any} Notification
 */
export const addFormat = (app, tracker, Notification) => {
  app.commands.addCommand(COMMAND, {
    label: "Format SQL",
    isVisible: () => sqlOf(tracker.activeCell?.model.sharedModel.getSource() ?? "") !== null,
    execute: () => format(tracker, Notification),
  });
  app.contextMenu.addItem({ command: COMMAND, selector: ".jp-Notebook .jp-CodeCell", rank: 11 });
  app.commands.addKeyBinding({ command: COMMAND, keys: ["Alt Shift F"], selector: ".jp-Notebook .jp-CodeCell" });
};
