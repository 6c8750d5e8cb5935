// A run of a workflow: its graph, the times of its steps, its questions.
import { fieldsForm } from "./fields.js";
import { Link } from "./link.js";
import { h, insertCell, mount, onChange, showError } from "./shared.js";

/** @import { Field, Problems } from "./fields.js" */
/** @import { Model, View } from "./shared.js" */

/**
 * A question of a step.
 * @typedef {object} Question
 * @property {string} step
 * @property {string} text
 * @property {Field[]} fields of a form; without fields there are `answers`
 * @property {[answer: unknown, label: string][]} answers
 * @property {boolean} gives whether a step that is counted as done gave something that others read
 * @property {string} told what was answered, once it was
 */

/** @type {{ [state: string]: string }} */
const TONES = {
  ok: "is-ok",
  reused: "is-ok",
  failed: "is-bad",
  running: "is-run",
  waiting: "is-warn",
  unknown: "is-warn",
  declined: "is-warn",
};
const RESUMABLE = ["failed", "cancelled", "declined"];
const LOOK_MS = 2000;
const PAINTED = ["is_followed", "questions", "state", "head", "graph", "bars", "outcome", "rows", "is_driven"];

/**
 * Return a group that scrolls and can be reached by keys.
 * @param {string} label
 * @param {...HTMLElement} children
 */
const scrollBox = (label, ...children) =>
  h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": label }, ...children);

/**
 * Make the elements that show the state of a run.
 * @param {Model} model
 */
const createParts = (model) => {
  const body = h("tbody");
  const heads = model.get("columns").map((/** @type {string} */ name) => h("th", { scope: "col" }, name));
  const graph = scrollBox("Graph of the run");
  const bars = scrollBox("When each step ran");
  const table = h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ...heads)), body);
  const steps = scrollBox("Steps of the run", table);
  return {
    pill: h("span", { class: "pill" }),
    head: h("span", { class: "dim" }),
    failure: h("div", {}),
    questions: h("div", { class: "asks", "aria-live": "polite" }),
    outcome: scrollBox("What the run returned"),
    graph,
    bars,
    body,
    graphFold: h("details", { open: true }, h("summary", {}, "Graph"), graph),
    stepsFold: h("details", { open: true }, h("summary", {}, "Steps"), steps),
    timesFold: h("details", {}, h("summary", {}, "Times"), bars),
  };
};

/**
 * @param {Model} model
 * @param {ReturnType<typeof createParts>} parts
 */
const paint = (model, { pill, head, graph, bars, outcome, body }) => {
  const state = model.get("state");
  pill.className = `pill ${TONES[state] ?? ""}`;
  pill.textContent = state;
  head.textContent = model.get("head");
  // Made by the kernel's side, which escapes every text in it.
  graph.innerHTML = model.get("graph");
  bars.innerHTML = model.get("bars");
  outcome.innerHTML = model.get("outcome");
  outcome.hidden = !model.get("outcome");
  const rows = model.get("rows").map((/** @type {string[]} */ row) => {
    const cells = row.map((text, at) => (at ? h("td", {}, text) : h("th", { scope: "row" }, text)));
    return h("tr", { "data-state": row[1] }, ...cells);
  });
  body.replaceChildren(...rows);
};

/**
 * Return what is sent for a question, and where it says what is wrong with the answer.
 * @param {Question} question
 * @param {Link} link
 */
const questionForm = ({ step, fields, answers, gives }, link) => {
  const failure = h("div", { class: "wrong", role: "alert" });
  const form = fields.length ? fieldsForm(fields) : null;
  /** @param {boolean} isOff */
  const disable = (isOff) => {
    for (const each of buttons) each.disabled = isOff;
  };
  /** @param {Problems} problems */
  const showProblems = (problems) => {
    if (form) form.showProblems(problems, true);
    else failure.textContent = Object.values(problems).join("; ");
  };
  /** @param {unknown} answer */
  const send = async (answer) => {
    disable(true);
    try {
      showProblems((await link.ask("answer", { step, answer })).problems);
    } catch (error) {
      showError(failure, error);
    }
    disable(false);
  };
  // What a step gave that is counted as done: the nodes behind it read that.
  const hint = "what it gave, as JSON";
  const value = gives ? h("input", { type: "text", class: "mono", "aria-label": hint, placeholder: hint }) : null;
  const buttons = form
    ? [h("button", { type: "button", class: "primary", onclick: () => send(form.typed()) }, "Send")]
    : answers.map(([answer, label], at) =>
        h(
          "button",
          {
            type: "button",
            class: at ? "" : "primary",
            onclick: () => send(value && answer === "done" ? `done ${value.value}` : answer),
          },
          label,
        ),
      );
  return [form && form.element, value, failure, h("div", { class: "answers" }, ...buttons)];
};

/**
 * @param {Question} question
 * @param {Link} link
 */
const drawQuestion = (question, link) => {
  const { step, text, told: message } = question;
  const head = h("div", {}, h("code", { class: "mono" }, step), " asks: ", h("strong", {}, text));
  if (message) return h("div", { class: "question" }, head, h("div", { class: "dim" }, message));
  const group = { class: "question", role: "group", "aria-label": `${step} asks` };
  return h("div", group, head, ...questionForm(question, link));
};

/**
 * Return a function that shows the questions of now; cards that stay are not touched.
 * @param {Model} model
 * @param {Link} link
 * @param {HTMLElement} element
 */
const questionPainter = (model, link, element) => {
  /** @type {Map<string, HTMLElement>} */
  const cards = new Map();
  return () => {
    /** @type {Map<string, Question>} */
    const now = new Map();
    // An answered question has a card of its own.
    for (const each of model.get("questions")) now.set(JSON.stringify([each.step, each.told]), each);
    for (const [key, card] of cards) {
      if (now.has(key)) continue;
      card.remove();
      cards.delete(key);
    }
    for (const [key, question] of now) {
      if (cards.has(key)) continue;
      const card = drawQuestion(question, link);
      cards.set(key, card);
      element.append(card);
    }
  };
};

/**
 * Return the button that inserts a cell, from which a run goes on that nobody drives.
 * @param {Model} model
 * @param {HTMLElement} root
 */
const resumeButton = (model, root) => {
  const onclick = () => {
    const run = model.get("run_id");
    const python = `nbtools.workbench().workflows.resume("${run}")`;
    insertCell(root, `%load_ext nbtools\n%workflow resume ${run}`, python);
  };
  return h("button", { type: "button", onclick }, "Insert a cell to continue");
};

/** @param {Model} model */
const isResumable = (model) => {
  if (model.get("is_driven") || model.get("questions").some((/** @type {Question} */ each) => !each.told)) {
    return false;
  }
  return model.get("is_followed") || RESUMABLE.includes(model.get("state"));
};

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const root = mount(el, model, `Run of ${model.get("title")}`, signal);
    const link = new Link(model, root, signal);
    const parts = createParts(model);
    const { pill, head, failure, questions, outcome, graphFold, stepsFold, timesFold } = parts;
    const onStop = async () => {
      stop.disabled = true;
      try {
        await link.ask("stop");
      } catch (error) {
        stop.disabled = false;
        showError(failure, error);
      }
    };
    const stop = h("button", { type: "button", class: "danger", onclick: onStop }, "Stop");
    const resume = resumeButton(model, root);
    const title = h("span", { class: "title" }, model.get("title"));
    const bar = h("div", { class: "bar" }, pill, title, head, h("span", { class: "grow" }), resume, stop);
    root.append(bar, failure, questions, outcome, graphFold, stepsFold, timesFold);

    const paintAll = () => {
      paint(model, parts);
      stop.hidden = !model.get("is_driven");
      resume.hidden = !isResumable(model);
    };
    const fold = () => {
      if (model.get("is_short")) graphFold.open = stepsFold.open = false;
    };
    const ask = questionPainter(model, link, questions);
    const look = () => link.ask("look").catch((error) => showError(failure, error));
    const clock = setInterval(() => {
      if (model.get("is_followed") && !document.hidden) look();
    }, LOOK_MS);
    signal?.addEventListener("abort", () => clearInterval(clock));
    let frame = 0;
    const paintSoon = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        paintAll();
      });
    };
    onChange(model, PAINTED, paintSoon, signal);
    onChange(model, ["questions"], ask, signal);
    onChange(model, ["is_short"], fold, signal);
    paintAll();
    fold();
    ask();
    link.ready();
  },
};
