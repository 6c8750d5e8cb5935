// Colours for the parts of a cell that are in a language of their own, from Lab's own parsers and theme.
import { scriptLanguages } from "./script_language.js";

/** @import { EditorView, ViewUpdate } from "@codemirror/view" */
/** @import { Extension, Range } from "@codemirror/state" */
/** @import { Part } from "./parts.js" */
/** @import { Lab } from "./plugins.js" */
/** @import { Languages } from "./script_language.js" */

/** What DuckDB adds to the words that Lab's parser of SQL knows. */
const WORDS = new Set(
  (
    "anti asof attach copy describe exclude explain ilike pivot positional qualify replace sample semi show struct " +
    "summarize try_cast unpivot using"
  ).split(" "),
);

/**
 * Return the classes of a word that the parser of SQL did not tell apart: a parameter, a word of DuckDB, a function.
 * @param {Lab} lab
 * @param {string} text
 * @param {{ name: string, from: number, to: number }} node
 */
const classOfWord = ({ style, tags }, text, { name, from, to }) => {
  if (!/^(Identifier|Keyword|Type|Builtin)$/.test(name)) return null;
  const isParameter = /([^:]|^)[:$]$/.test(text.slice(Math.max(0, from - 2), from));
  if (isParameter) return style.style([tags.special(tags.variableName)]);
  if (name !== "Identifier") return null;
  if (WORDS.has(text.slice(from, to).toLowerCase())) return style.style([tags.keyword]);
  return text[to] === "(" ? style.style([tags.function(tags.variableName)]) : null;
};

/**
 * Return what draws the colours that the language of an editor does not: words of SQL, and scripts on a line of Python.
 * @param {EditorView} view
 * @param {Lab} lab
 * @param {Languages} languages
 */
const colouring = (view, lab, { field, come }) => {
  const { Decoration, highlightTree, languageOf, script, style, syntaxTree } = lab;
  const late = () => view.dispatch({ effects: come.of(null) });
  /** @type {(part: Part, text: string, isParsed: boolean) => Range<any>[]} */
  const marksOf = ({ from, to, mime }, text, isParsed) => {
    const language = languageOf(mime, late);
    if (!language) return [];
    // The editor has parsed and coloured a cell that is a script, but for some words.
    const start = isParsed ? 0 : from;
    const tree = isParsed ? syntaxTree(view.state) : language.script.parser.parse(text.slice(from, to));
    /** By where they begin. @type {Record<number, Range<any>>} */
    const marks = {};
    /** @type {(begin: number, end: number, classes: string | null) => void} */
    const mark = (begin, end, classes) => {
      if (classes) marks[begin] ??= Decoration.mark({ class: classes }).range(start + begin, start + end);
    };
    // Other languages have no nodes of these names.
    tree.iterate({
      from: view.viewport.from - start,
      to: view.viewport.to - start,
      enter: (node) => mark(node.from, node.to, classOfWord(lab, text.slice(start), node)),
    });
    if (!isParsed) highlightTree(tree, style, mark);
    return Object.values(marks);
  };
  const draw = () => {
    const { parts, language } = view.state.field(field);
    const text = view.state.doc.toString();
    own.base = Decoration.set(language ? [] : parts.map(({ from, to }) => script.range(from, to)));
    const marks = parts.flatMap((part) => marksOf(part, text, Boolean(language)));
    own.tokens = Decoration.set(marks, true);
  };
  const own = {
    base: Decoration.none,
    tokens: Decoration.none,
    /** @param {ViewUpdate} update */
    update({ startState, state, viewportChanged }) {
      const isOther = startState.field(field) !== state.field(field) || syntaxTree(startState) !== syntaxTree(state);
      if (isOther || viewportChanged) draw();
    },
  };
  draw();
  return own;
};

/**
 * Return the extension of every editor that colours scripts.
 * @param {Lab} lab
 * @returns {Extension}
 */
export const colours = (lab) => {
  const languages = scriptLanguages(lab);
  const plugin = lab.ViewPlugin.define((/** @type {EditorView} */ view) => colouring(view, lab, languages));
  /** @param {"base" | "tokens"} name */
  const layer = (name) =>
    lab.EditorView.decorations.of(
      (/** @type {EditorView} */ view) => view.plugin(plugin)?.[name] ?? lab.Decoration.none,
    );
  // The innermost mark decides the colour, and the one that comes first is the innermost: tokens stand in the base, and
  // the base in what Python made of the text.
  return [languages.extension, plugin, lab.Prec.highest([layer("tokens"), layer("base")])];
};
