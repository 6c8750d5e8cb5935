// Answers what the kernel of a notebook asks for: its cells, and what a person makes of a cell that is proposed.
import { answerOf, isLastStep, panelOf } from "./cells.js";
import { compareVersions } from "./format.js";
import { evaluated } from "./kernel.js";
import { propose } from "./proposals.js";

const PATIENCE = 3000;
const AGAIN = "get_ipython().meta['nbtools'].dispatcher.session.page.show_again";

/**
 * Wait until messages of a comm reach the kernel while a cell runs, where it has subshells.
 * @param {any} comm
 * @param {any} kernel
 */
const ready = async (comm, kernel) => {
  if (!comm.subshellStarted || comm.commsOverSubshells === "disabled") return;
  await kernel.info;
  if (!kernel.supportsSubshells) return;
  const late = new Promise((resolve) => setTimeout(resolve, PATIENCE));
  await Promise.race([comm.subshellStarted.catch(() => null), late]);
};

/**
 * Answer the kernels of all notebooks.
 * @param {any} tracker
 * @param {any} consoles
 * @param {any} Notification
 */
export const answerKernels = (tracker, consoles, Notification) => {
  /**
   * @param {any} kernel
   * @param {any} comm
   * @param {import("./cells.js").Question} question
   */
  const answer = async (kernel, comm, question) => {
    compareVersions(question.version, Notification);
    await ready(comm, kernel);
    // Another notebook of this page may have the same kernel, and its comms come here too.
    const panels = tracker.filter((/** @type {any} */ each) => each.sessionContext.session?.kernel?.id === kernel.id);
    const panel = /** @type {any} */ (panelOf(panels, question));
    const reply = answerOf(panels, question) ?? propose(panel, question, comm);
    if (!comm.isDisposed) comm.send(reply);
  };
  /** @param {any} kernel */
  const register = (kernel) => {
    // Not waited for: the kernel's other messages, the one of the subshell among them, come when this has returned.
    kernel?.registerCommTarget("nbtools.notebook", (/** @type {any} */ comm, /** @type {any} */ { content }) => {
      void answer(kernel, comm, content.data);
    });
  };
  const follow = (/** @type {any} */ _tracker, /** @type {any} */ { sessionContext }) => {
    register(sessionContext.session?.kernel);
    sessionContext.kernelChanged.connect((/** @type {any} */ _, /** @type {any} */ { newValue }) => register(newValue));
  };
  /** Ask for the proposals that waited when the page was loaded. @param {any} panel */
  const restore = async ({ revealed, sessionContext, context }) => {
    await Promise.all([revealed, sessionContext.ready]);
    const kernel = sessionContext.session?.kernel;
    const info = await kernel?.info;
    if (info?.language_info.name === "python") await evaluated(kernel, `${AGAIN}(${JSON.stringify(context.path)})`);
  };
  const open = (/** @type {any} */ _, /** @type {any} */ panel) => {
    follow(null, panel);
    // It may be closed meanwhile.
    restore(panel).catch(() => null);
  };
  tracker.widgetAdded.connect(open);
  tracker.forEach((/** @type {any} */ panel) => open(null, panel));
  // Of several connections to a kernel the first has the comms, which may be a console's.
  consoles?.widgetAdded.connect(follow);
};

/**
 * Let Ctrl+Z take back a cell that was just inserted or deleted; Lab has another key for that.
 * @param {import("./plugins.js").App} app
 * @param {import("./plugins.js").Tracker} tracker
 */
export const addUndo = ({ commands }, tracker) => {
  const command = "nbtools:undo";
  commands.addCommand(command, {
    label: "Undo",
    execute: () => commands.execute(isLastStep(tracker.currentWidget) ? "notebook:undo-cell-action" : "editmenu:undo"),
  });
  commands.addKeyBinding({ command, keys: ["Accel Z"], selector: ".jp-Notebook.jp-mod-commandMode :focus" });
};
