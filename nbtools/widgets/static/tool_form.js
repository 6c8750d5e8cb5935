// A tool: its arguments, messages at the field, the result below.
import { fieldsForm } from "./fields.js";
import { Link } from "./link.js";
import { h, insertCell, later, mount, runByKey, showError } from "./shared.js";

/** @import { Values } from "./fields.js" */
/** @import { Picture, View } from "./shared.js" */
/** @typedef {{ ok: boolean, code: string, seconds: number, text?: string, pictures: Picture[] }} Result */

/**
 * Return what a call left.
 * @param {string} name of the tool
 * @param {Result} result
 */
const drawResult = (name, { ok, code, seconds, text, pictures }) => {
  const pill = h("span", { class: `pill ${ok ? "is-ok" : "is-bad"}` }, ok ? "done" : code);
  return [
    h("div", { class: "dim" }, pill, ` ${name} · ${seconds.toFixed(2)} s`),
    ...(text ? [h("pre", { class: "mono", tabindex: "0", "aria-label": "Result" }, text)] : []),
    ...pictures.map((each) => h("img", { src: each.uri, alt: each.name })),
  ];
};

/**
 * Return where the result of a call is shown, and what shows it.
 * @param {string} name of the tool
 * @param {Link} link
 */
const outputOf = (name, link) => {
  const failure = h("div", {});
  const result = h("div", { "aria-live": "polite" });
  const text = h("pre", { class: "mono", tabindex: "0", "aria-label": "Output", hidden: true });
  let textName = "";
  link.hear("begins", (details) => {
    textName = details.text;
  });
  link.text("*", (whole, of) => {
    if (of !== textName) return;
    text.hidden = false;
    text.textContent = whole;
  });
  const clear = () => {
    text.hidden = true;
    text.textContent = "";
    result.replaceChildren();
    showError(failure, null);
  };
  /** @param {Result} answer */
  const paint = (answer) => {
    if (answer.text === undefined) return;
    text.hidden = true;
    result.replaceChildren(...drawResult(name, answer));
  };
  /** @param {{ message: string, stopped?: boolean }} error */
  const fail = (error) => {
    if (error.stopped) result.replaceChildren(h("div", { class: "notice" }, "You stopped it."));
    else showError(failure, error);
  };
  return { element: h("div", { class: "inside" }, failure, text, result), clear, paint, fail };
};

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const name = model.get("title");
    const root = mount(el, model, `Tool ${name}`, signal);
    const link = new Link(model, root, signal);
    const output = outputOf(name, link);
    const check = later(300, async () => {
      try {
        form.showProblems((await link.ask("check", { typed: form.typed() })).problems);
      } catch (error) {
        output.fail(error);
      }
    });
    /** @param {Values} edited */
    const edit = (edited) => {
      model.set("draft", { ...edited });
      model.save_changes();
      check();
    };
    const form = fieldsForm(model.get("fields"), { draft: model.get("draft"), edit });
    /** @type {AbortController | null} */
    let running = null;
    const go = async () => {
      if (running) return;
      running = new AbortController();
      run.disabled = true;
      stop.hidden = false;
      output.clear();
      try {
        const answer = await link.ask("run", { typed: form.typed() }, { signal: running.signal });
        form.showProblems(answer.problems, true);
        if (answer.result) output.paint(answer.result);
      } catch (error) {
        output.fail(error);
      }
      running = null;
      run.disabled = false;
      stop.hidden = true;
    };
    const run = h("button", { type: "button", class: "primary", onclick: go }, "Run");
    const onStop = () => running?.abort();
    const stop = h("button", { type: "button", class: "danger", hidden: true, onclick: onStop }, "Stop");
    const insert = async () => {
      try {
        insertCell(root, await link.ask("cell", { typed: form.typed() }));
      } catch (error) {
        output.fail(error);
      }
    };
    const cell = h("button", { type: "button", class: "keep", onclick: insert }, "Insert as cell");
    runByKey(form.element, go);
    const about = h("span", { class: "dim" }, model.get("about"));
    root.append(
      h("div", { class: "bar" }, h("code", { class: "mono title" }, name), about),
      h("div", { class: "inside" }, form.element),
      h("div", { class: "bar" }, run, stop, cell),
      output.element,
    );
    output.paint(model.get("result"));
    link.ready();
  },
};
