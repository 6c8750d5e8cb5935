// What the extension adds to JupyterLab and Notebook.
import { offerAgent, takeCells } from "./ask.js";
import { addFormat } from "./format.js";
import { colours } from "./highlight.js";
import { mistakes } from "./mistakes.js";
import { addUndo, answerKernels } from "./notebook.js";
import { cellLanguage } from "./script_language.js";

/** @import { Decoration as Mark } from "@codemirror/view" */
/** @import { Language } from "@codemirror/language" */

/**
 * What is used of Lab's own modules.
 * @typedef {Pick<typeof import("@codemirror/view"), "Decoration" | "EditorView" | "ViewPlugin">
 *   & Pick<typeof import("@codemirror/state"), "Prec" | "StateEffect" | "StateField">
 *   & Pick<typeof import("@codemirror/language"),
 *       "StreamLanguage" | "indentService" | "language" | "syntaxTree">
 *   & Pick<typeof import("@lezer/highlight"), "highlightTree" | "tags">
 *   & { style: import("@codemirror/language").HighlightStyle, script: Mark,
 *       languageOf: (mime: string, late?: () => void) => { script: Language, cell: Language } | null }} Lab
 */
/**
 * @typedef {{ type?: string, outputs?: { length: number, get: (at: number) => { toJSON: () => any },
 *   changed: { connect: (slot: () => void) => void, disconnect: (slot: () => void) => void } } }} CellModel
 */
/** @typedef {{ commands: any, contextMenu: any }} App */
/** @typedef {{ currentWidget: any, activeCell: any }} Tracker */

/**
 * Return how a language is had, for scripts alone and for cells: at once, or `late` is called when it has come.
 * @param {any} registry
 * @returns {Lab["languageOf"]}
 */
const loading = (registry) => {
  /** @type {Record<string, ReturnType<Lab["languageOf"]>>} */
  const languages = {};
  return (mime, late) => {
    const spec = registry.findByMIME(mime);
    const script = spec?.support?.language;
    if (script) return (languages[mime] ??= { script, cell: cellLanguage(script) });
    if (late && spec && !spec.support) registry.getLanguage(mime).then(late, () => null);
    return null;
  };
};

/**
 * Return what is used of Lab's modules.
 * @param {(name: string) => Promise<any>} shared
 * @param {any} codemirror
 * @param {any} registry of languages
 * @returns {Promise<Lab>}
 */
const modules = async (shared, { jupyterHighlightStyle: style }, registry) => {
  const names = ["@codemirror/view", "@codemirror/state", "@codemirror/language", "@lezer/highlight"];
  const lab = Object.assign({}, ...(await Promise.all(names.map(shared))));
  return { ...lab, style, script: lab.Decoration.mark({ class: "nbt-script" }), languageOf: loading(registry) };
};

const addStyle = () => {
  const { href } = new URL("./lab.css", import.meta.url);
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href }));
};

/**
 * Return the plugins of the extension. Other pages load it too (voila), and offer nothing that a plugin could require.
 * @param {(name: string) => Promise<any>} shared
 */
export default async (shared) => {
  const names = ["codemirror", "notebook", "apputils", "console"].map((name) => `@jupyterlab/${name}`);
  const [codemirror, notebook, { Notification }, { IConsoleTracker }] = await Promise.all(names.map(shared));
  return [
    {
      id: "nbtools:scripts",
      description: "Colours scripts, underlines mistakes.",
      autoStart: true,
      optional: [codemirror.IEditorExtensionRegistry, codemirror.IEditorLanguageRegistry],
      activate: async (/** @type {any} */ _app, /** @type {any} */ editors, /** @type {any} */ languages) => {
        if (!editors || !languages) return;
        addStyle();
        const lab = await modules(shared, codemirror, languages);
        const coloured = colours(lab);
        const factory = (/** @type {{ model?: CellModel }} */ { model }) => {
          const own = model?.type === "code" ? [coloured, mistakes(lab, model)] : [];
          return { instance: () => own, reconfigure: () => null };
        };
        editors.addExtension({ name: "nbtools-scripts", factory });
      },
    },
    {
      id: "nbtools:notebook",
      description: "Lets agents read cells and propose new ones; formats SQL.",
      autoStart: true,
      optional: [notebook.INotebookTracker, IConsoleTracker],
      activate: (/** @type {any} */ app, /** @type {any} */ tracker, /** @type {any} */ consoles) => {
        if (!tracker) return;
        addFormat(app, tracker, Notification);
        answerKernels(tracker, consoles, Notification);
        addUndo(app, tracker);
        takeCells(tracker);
        offerAgent(tracker, notebook.NotebookActions);
      },
    },
  ];
};
