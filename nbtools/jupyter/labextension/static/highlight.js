// Colours for the parts of a cell that are in a language of their own, from Lab's own parsers and theme.
import { partsOf } from "./parts.js";

/** @import { DecorationSet, EditorView, ViewUpdate } from "@codemirror/view" */
/** @import { Extension, Range } from "@codemirror/state" */
/** @import { Tree } from "@lezer/common" */
/** @import { Part } from "./parts.js" */
/** @import { Lab, Parser } from "./plugins.js" */

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

/** Draws the colours of one editor, and parses again only what changed. */
class Colours {
  /**
   * @param {EditorView} view
   * @param {Lab} lab
   */
  constructor(view, lab) {
    this.lab = lab;
    this.view = view;
    /** The last tree of each part, by its place in the list. @type {{ tree: Tree, text: string }[]} */
    this.trees = [];
    /** @type {DecorationSet} */
    this.base = lab.Decoration.none;
    /** @type {DecorationSet} */
    this.tokens = lab.Decoration.none;
    this.draw();
  }

  /** @param {ViewUpdate} update */
  update(update) {
    if (update.docChanged || update.viewportChanged || this.isLate) this.draw();
  }

  draw() {
    const { Decoration } = this.lab;
    this.isLate = false;
    const text = this.view.state.doc.toString();
    const parts = partsOf(text);
    this.base = Decoration.set(
      parts.filter((part) => part.from < part.to).map((part) => this.lab.script.range(part.from, part.to)),
    );
    const marks = parts.flatMap((part, at) => this.marksOf(part, at, text));
    this.tokens = Decoration.set(marks, true);
  }

  /**
   * @param {Part} part
   * @param {number} at
   * @param {string} whole
   * @returns {Range<any>[]}
   */
  marksOf(part, at, whole) {
    const parser = this.lab.parserOf(part.mime, () => this.come());
    if (!parser) return [];
    const text = whole.slice(part.from, part.to);
    const tree = this.treeOf(parser, text, at);
    /** @type {Range<any>[]} */
    const marks = [];
    const { from, to } = this.view.viewport;
    /** @type {(start: number, end: number, classes: string) => void} */
    const mark = (start, end, classes) =>
      void marks.push(this.lab.Decoration.mark({ class: classes }).range(part.from + start, part.from + end));
    const [first, last] = [Math.max(0, from - part.from), Math.max(0, to - part.from)];
    /** Words whose class is ours, by where they begin. @type {Set<number>} */
    const words = new Set();
    if (part.mime === "text/x-pgsql") {
      tree.iterate({
        from: first,
        to: last,
        enter: (node) => {
          const classes = classOfWord(this.lab, text, node);
          if (!classes) return;
          words.add(node.from);
          mark(node.from, node.to, classes);
        },
      });
    }
    /** @type {typeof mark} */
    const markOther = (start, end, classes) => {
      if (!words.has(start)) mark(start, end, classes);
    };
    this.lab.highlightTree(tree, this.lab.style, markOther, first, last);
    return marks;
  }

  /**
   * Parse a part, by what is known of it from before.
   * @param {Parser} parser
   * @param {string} text
   * @param {number} at
   */
  treeOf(parser, text, at) {
    const { TreeFragment } = this.lab;
    const last = this.trees[at];
    let start = 0;
    let fragments = /** @type {readonly any[]} */ ([]);
    if (last) {
      const shorter = Math.min(last.text.length, text.length);
      while (start < shorter && last.text[start] === text[start]) start += 1;
      let same = 0;
      while (same < shorter - start && last.text.at(-1 - same) === text.at(-1 - same)) same += 1;
      const change = { fromA: start, toA: last.text.length - same, fromB: start, toB: text.length - same };
      fragments = TreeFragment.applyChanges(TreeFragment.addTree(last.tree), [change]);
    }
    const tree = parser.parse(text, fragments);
    this.trees[at] = { tree, text };
    return tree;
  }

  /** A parser has come: draw again. */
  come() {
    this.isLate = true;
    if (this.view.dom.isConnected) this.view.dispatch({});
  }
}

/**
 * Return the extension of every editor that colours scripts.
 * @param {Lab} lab
 * @returns {Extension}
 */
export const colours = (lab) => {
  const plugin = lab.ViewPlugin.define((/** @type {EditorView} */ view) => new Colours(view, lab));
  /** @param {"base" | "tokens"} name */
  const layer = (name) =>
    lab.EditorView.decorations.of(
      (/** @type {EditorView} */ view) => view.plugin(plugin)?.[name] ?? lab.Decoration.none,
    );
  // The innermost mark decides the colour, and the one that comes first is the innermost: tokens stand in the base, and
  // the base in what Python made of the text.
  return [plugin, lab.Prec.highest([layer("tokens"), layer("base")])];
};
