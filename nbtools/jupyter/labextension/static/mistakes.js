// Underlines the words that a failed query is about, for as long as the cell is as it was run.
import { errorOf } from "./cells.js";
import { placeOf } from "./parts.js";

/** @import { EditorState, Extension } from "@codemirror/state" */
/** @import { DecorationSet, EditorView } from "@codemirror/view" */
/** @import { CellModel, Lab } from "./plugins.js" */

/**
 * Return the extension of the editor of one cell.
 * @param {Lab} lab
 * @param {CellModel} model
 * @returns {Extension}
 */
export const mistakes = (lab, model) => {
  const { Decoration, EditorView, StateEffect, StateField, ViewPlugin } = lab;
  const mark = Decoration.mark({ class: "nbt-mistake" });
  /** @type {(state: EditorState) => DecorationSet} */
  const look = (state) => {
    const error = errorOf(model);
    const range = error && placeOf(`\n${error.evalue}`, state.doc.toString());
    return range && range.from < range.to ? Decoration.set(mark.range(range.from, range.to)) : Decoration.none;
  };
  const changed = StateEffect.define();
  const field = StateField.define({
    create: look,
    update: (marks, step) => {
      if (step.docChanged) return Decoration.none;
      return step.effects.some((effect) => effect.is(changed)) ? look(step.state) : marks;
    },
    provide: (own) => EditorView.decorations.from(own),
  });
  const follow = ViewPlugin.define((/** @type {EditorView} */ view) => {
    const tell = () => view.dispatch({ effects: changed.of(null) });
    model.outputs?.changed.connect(tell);
    return { destroy: () => model.outputs?.changed.disconnect(tell) };
  });
  return [field, follow];
};
