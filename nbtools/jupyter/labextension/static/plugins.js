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
  /** @type {Map<string, Parser | null>} */
  const ready = new Map();
  /** @type {Map<string, (() => void)[]>} */
  const waiting = new Map();
  /** @param {string} mime */
  const load = async (mime) => {
    const language = await languages.getLanguage(mime).catch(() => null);
    ready.set(mime, language?.support?.language.parser ?? null);
    for (const late of waiting.get(mime) ?? []) late();
    waiting.delete(mime);
  };
  return (mime, late) => {
    const parser = ready.get(mime);
    if (parser !== undefined) return parser;
    const others = waiting.get(mime);
    if (others) others.push(late);
    else {
      waiting.set(mime, [late]);
      void load(mime);
    }
    return null;
  };
};

/**
 * Return what is used of Lab's modules.
 * @param {(name: string) => Promise<any>} shared
 * @param {any} languages
 * @returns {Promise<Lab>}
 */
const modules = async (shared, languages) => {
  const names = [
    "@codemirror/view",
    "@codemirror/state",
    "@lezer/common",
    "@lezer/highlight",
    "@jupyterlab/codemirror",
  ];
  const [view, state, common, highlight, codemirror] = await Promise.all(names.map(shared));
  const { Decoration, EditorView, ViewPlugin } = view;
  const { Prec, StateEffect, StateField } = state;
  return {
    ...{ Decoration, EditorView, ViewPlugin, Prec, StateEffect, StateField, TreeFragment: common.TreeFragment },
    ...{ highlightTree: highlight.highlightTree, tags: highlight.tags, style: codemirror.jupyterHighlightStyle },
    script: Decoration.mark({ class: "nbt-script" }),
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
 * Return the plugins of the extension.
 * @param {(name: string) => Promise<any>} shared
 */
export const plugins = async (shared) => {
  const names = ["@jupyterlab/codemirror", "@jupyterlab/notebook", "@jupyterlab/apputils"];
  const [codemirror, notebook, { Notification }] = await Promise.all(names.map(shared));
  return [
    {
      id: "nbtools:scripts",
      description: "Colours the scripts of magics, and underlines what a failed query is about.",
      autoStart: true,
      requires: [codemirror.IEditorExtensionRegistry, codemirror.IEditorLanguageRegistry],
      activate: async (/** @type {any} */ _app, /** @type {any} */ editors, /** @type {any} */ languages) => {
        addStyle();
        const lab = await modules(shared, languages);
        const coloured = colours(lab);
        const factory = (/** @type {{ model?: CellModel }} */ { model }) => {
          const own = model?.type === "code" ? [coloured, mistakes(lab, model)] : [];
          return { instance: () => own, reconfigure: () => null };
        };
        editors.addExtension({ name: "nbtools-scripts", factory });
      },
    },
    {
      id: "nbtools:format",
      description: "Formats the SQL of a cell.",
      autoStart: true,
      requires: [notebook.INotebookTracker],
      activate: (/** @type {any} */ app, /** @type {any} */ tracker) => addFormat(app, tracker, Notification),
    },
    {
      id: "nbtools:notebook",
      description: "Lets agents read the cells of a notebook, and propose others.",
      autoStart: true,
      requires: [notebook.INotebookTracker],
      activate: (/** @type {any} */ app, /** @type {any} */ tracker) => {
        answerKernels(tracker);
        addUndo(app, tracker);
        offerAgent(tracker, notebook.NotebookActions);
      },
    },
  ];
};
