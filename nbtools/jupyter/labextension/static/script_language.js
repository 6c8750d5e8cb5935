// The language of an editor whose cell is a script. Lab takes every cell for Python, whose parser finds a mistake at
// each word of SQL: that took more time for a key than all else. So a script is parsed by its own language, below the
// line of its magic; the editor then colours it, and comments its lines out, as in a file of that language.
import { partsOf } from "./parts.js";

/** @import { EditorState, Extension, StateEffectType, StateField } from "@codemirror/state" */
/** @import { Language } from "@codemirror/language" */
/** @import { Input, Parser } from "@lezer/common" */
/** @import { Part } from "./parts.js" */
/** @import { Lab } from "./plugins.js" */

/** @typedef {{ parts: Part[], language: Language | undefined }} Scripts the parts of a cell, and its own language */
/** @typedef {{ field: StateField<Scripts>, come: StateEffectType<null>, extension: Extension }} Languages */

/**
 * Return what the parser of a script is to read of a cell: blanks for the line of the magic.
 * @param {Input} input
 * @returns {Input}
 */
const belowMagic = (input) => {
  const head = partsOf(input.read(0, input.length))[0]?.from ?? 0;
  /** @param {number} from @param {string} text */
  const blanked = (from, text) => {
    const end = Math.max(0, head - from);
    return text.slice(0, end).replace(/./g, " ") + text.slice(end);
  };
  return Object.assign(Object.create(input), {
    chunk: (/** @type {number} */ from) => blanked(from, input.chunk(from)),
    read: (/** @type {number} */ from, /** @type {number} */ to) => blanked(from, input.read(from, to)),
  });
};

/**
 * Return the language of a cell whose script is in another.
 * @param {Language} script
 * @returns {Language}
 */
export const cellLanguage = (script) => {
  const parser = Object.create(script.parser);
  /** @type {Parser["createParse"]} */
  parser.createParse = (input, ...rest) => script.parser.createParse(belowMagic(input), ...rest);
  return Object.assign(Object.create(script), { parser });
};

/**
 * Return the extension that gives a script its language, and what knows the parts of a cell.
 * @param {Lab} lab
 * @returns {Languages}
 */
export const scriptLanguages = (lab) => {
  const { Prec, StateEffect, StateField, StreamLanguage, indentService, language } = lab;
  const come = StateEffect.define();
  /** @type {(state: EditorState) => Scripts} */
  const look = ({ doc }) => {
    const parts = partsOf(doc.toString());
    return { parts, language: parts[0]?.isCell ? lab.languageOf(parts[0].mime)?.cell : undefined };
  };
  const field = StateField.define({
    create: look,
    update: (scripts, step) =>
      step.docChanged || step.effects.some((effect) => effect.is(come)) ? look(step.state) : scripts,
    provide: (own) =>
      Prec.highest([
        language.computeN([own], (state) => [state.field(own).language ?? []].flat()),
        // A new line begins where the one before does.
        indentService.of(({ state }) => (state.field(own).language ? null : undefined)),
      ]),
  });
  // An editor that may have a language must have one: until Python's comes too.
  const none = StreamLanguage.define({ token: (line) => line.skipToEnd() ?? null });
  return { field, come, extension: [field, Prec.lowest(language.of(none))] };
};
