// What the extension adds to JupyterLab and Notebook.
import { offerAgent } from "./ask.js";
import { addFormat } from "./format.js";
import { colours } from "./highlight.js";
import { mistakes } from "./mistakes.js";
import { addUndo, answerKernels } from "./notebook.js";

/** @import { Decoration as Mark } from "@codemirror/view" */
/** @import { Tree, TreeFragment } from "@lezer/common" */

/** @typedef {{ parse: (text: string, fragments?: readonly TreeFragment[]) => Tree }} Parser */
/**
 * What is used of Lab's own modules.
 * @typedef {Pick<typeof import("@codemirror/view"), "Decoration" | "EditorView" | "ViewPlugin">
 *   & Pick<typeof import("@codemirror/state"), "Prec" | "StateEffect" | "StateField">
 *   & Pick<typeof import("@lezer/common"), "TreeFragment">
 *   & Pick<typeof import("@lezer/highlight"), "highlightTree" | "tags">
 *   & { style: import("@codemirror/language").HighlightStyle, script: Mark,
 *       parserOf: (mime: string, late: () => void) => Parser | null }} Lab
 */
/**
 * @typedef {{ type?: string, outputs?: { length: number, get: (at: number) => { toJSON: () => any },
 *   changed: { connect: (slot: () => void) => void, disconnect: (slot: () => void) => void } } }} CellModel
 */
/** @typedef {{ commands: any, contextMenu: any }} App */
/** @typedef {{ currentWidget: any, activeCell: any }} Tracker */

/**
 * Return how the parser of a language is had: at once, or `late` is called when it has come.
 * @param {any} languages
 * @returns {Lab["parserOf"]}
 */
const parsers = (languages) => {
  /** @type {Map<string, { parser: Parser | null, coming: Promise<void> | null }>} */
  const loaded = new Map();
  /** @param {string} mime */
  const load = (mime) => {
    /** @param {any} language */
    const take = (language) => {
      own.parser = language?.support?.language.parser ?? null;
      own.coming = null;
    };
    const own = { parser: null, coming: languages.getLanguage(mime).then(take, take) };
    loaded.set(mime, own);
    return own;
  };
  return (mime, late) => {
    const { parser, coming } = loaded.get(mime) ?? load(mime);
    void coming?.then(late);
    return parser;
  };
};

/**
 * Return what is used of Lab's modules.
 * @param {(name: string) => Promise<any>} shared
 * @param {any} codemirror
 * @param {any} languages
 * @returns {Promise<Lab>}
 */
const modules = async (shared, { jupyterHighlightStyle }, languages) => {
  const names = ["@codemirror/view", "@codemirror/state", "@lezer/common", "@lezer/highlight"];
  const [view, state, common, highlight] = await Promise.all(names.map(shared));
  return {
    ...{ ...view, ...state, ...common, ...highlight },
    style: jupyterHighlightStyle,
    script: view.Decoration.mark({ class: "nbt-script" }),
    parserOf: parsers(languages),
  };
};

const addStyle = () => {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL("./lab.css", import.meta.url).href;
  document.head.append(link);
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
      description: "Lets agents read cells, and propose others; formats SQL.",
      autoStart: true,
      optional: [notebook.INotebookTracker, IConsoleTracker],
      activate: (/** @type {any} */ app, /** @type {any} */ tracker, /** @type {any} */ consoles) => {
        if (!tracker) return;
        addFormat(app, tracker, Notification);
        answerKernels(tracker, consoles);
        addUndo(app, tracker);
        offerAgent(tracker, notebook.NotebookActions);
      },
    },
  ];
};
