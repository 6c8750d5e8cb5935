// What of notebooks is told to their kernel, and where a proposal belongs: pure functions of Lab's models.

/** @typedef {{ getSource: () => string, setSource: (text: string) => void }} SharedCell */
/**
 * @typedef {{ id: string, type: string, sharedModel: SharedCell, executionCount?: number | null,
 *   outputs?: { length: number, get: (at: number) => { toJSON: () => any } } }} Cell
 */
/**
 * @typedef {{ context: { path: string },
 *   content: { model: { cells: Iterable<Cell>, sharedModel: any } | null } }} Panel
 */
/**
 * @typedef {{ ask: string, notebook?: string, proposal?: string, action?: "insert" | "replace" | "delete",
 *   cell?: string, kind?: string, source?: string, before?: string | null, reason?: string, by?: string,
 *   lines?: [string, string][], version?: string }} Question
 */

const MOST = 20000;

/** @param {string | string[] | undefined} text */
const joined = (text) => (Array.isArray(text) ? text.join("") : (text ?? ""));

/**
 * Return an output as text.
 * @param {any} output
 */
const textOf = ({ output_type: type, text, ename, evalue, data }) => {
  if (type === "stream") return joined(text);
  if (type === "error") return `${ename}: ${evalue}`;
  return joined(data?.["text/plain"]) || `[${Object.keys(data ?? {}).join(", ")}]`;
};

/**
 * Return the outputs of a cell.
 * @param {Pick<Cell, "outputs">} cell
 */
const outputsOf = ({ outputs }) => Array.from({ length: outputs?.length ?? 0 }, (_, at) => outputs?.get(at).toJSON());

/**
 * Return the error among the outputs of a cell, if it failed.
 * @param {Pick<Cell, "outputs">} cell
 */
export const errorOf = (cell) => outputsOf(cell).find(({ output_type: type }) => type === "error");

/** @param {Cell} cell */
const toldOf = (cell) => ({
  id: cell.id,
  kind: cell.type,
  source: cell.sharedModel.getSource(),
  ran: cell.executionCount ?? null,
  outputs: outputsOf(cell).map((output) => textOf(output).slice(0, MOST)),
});

/** @param {Panel} panel */
export const cellsOf = ({ content }) => [...(content.model?.cells ?? [])];

/**
 * Return the one notebook that a question names.
 * @template {Panel} P
 * @param {P[]} panels
 * @param {Question} question
 */
export const panelOf = (panels, { notebook }) => panels.find(({ context }) => context.path === notebook);

/**
 * Answer what is only told: which notebooks there are, or the cells of one.
 * @param {Panel[]} panels
 * @param {Question} question
 */
export const answerOf = (panels, question) => {
  if (question.ask === "who") return { notebooks: [...new Set(panels.map(({ context }) => context.path))] };
  const panel = panelOf(panels, question);
  if (!panel) return { problem: `The notebook ${question.notebook} is no longer open here.` };
  return question.ask === "read" ? { cells: cellsOf(panel).map(toldOf) } : null;
};

/**
 * Return where the cell of a proposal stands, or the words for what is wrong with it. The last one, if none is named.
 * @param {Panel} panel
 * @param {Question} question
 * @returns {number | string}
 */
export const placeOfCell = (panel, { cell, before }) => {
  const cells = cellsOf(panel);
  if (cell == null) return cells.length - 1;
  const at = cells.findIndex(({ id }) => id === cell);
  if (at < 0) return "This cell is no longer in the notebook.";
  const isSame = before == null || cells[at].sharedModel.getSource() === before;
  return isSame ? at : "The cell changed since it was read: read it again.";
};

/** The steps of undo of notebooks that proposals made. @type {WeakSet<object>} */
const steps = new WeakSet();

/**
 * Return whether the last step of a notebook's undo is a proposal that was accepted.
 * @param {Panel | null} panel
 */
export const isLastStep = (panel) => {
  const step = panel?.content.model?.sharedModel.undoManager?.undoStack.at(-1);
  return steps.has(step);
};

/**
 * Do what a proposal says, as one step of undo, and return where that is; `null` where it cannot be done any more.
 * Nothing is run.
 * @param {Panel} panel
 * @param {Question} question
 */
export const applied = (panel, question) => {
  const at = placeOfCell(panel, question);
  if (typeof at === "string") return null;
  const { action, kind, source = "" } = question;
  const shared = panel.content.model?.sharedModel;
  // What was typed just before would be undone with it.
  const manager = action === "replace" ? shared.cells[at].undoManager : shared.undoManager;
  manager?.stopCapturing?.();
  if (action === "insert") shared.insertCell(at + 1, { cell_type: kind, source, metadata: {} });
  else if (action === "delete") shared.deleteCell(at);
  else shared.cells[at].setSource(source);
  manager?.stopCapturing?.();
  if (action !== "replace" && manager?.undoStack.length) steps.add(manager.undoStack.at(-1));
  return action === "insert" ? at + 1 : at;
};
