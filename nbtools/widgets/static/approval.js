// A call that waits for a yes: its arguments in fields, what it would change, a button for each scope.
import { fieldsForm } from "./fields.js";
import { h, later, showError } from "./shared.js";

/** @import { Field, Problems, Values } from "./fields.js" */

/** @typedef {{ title: string, text: string }} Part of what the call would change */
/**
 * A call, as nbtools.widgets.forms.proposals describes it.
 * @typedef {object} Proposal
 * @property {string} tool
 * @property {string} consequence
 * @property {string} caller
 * @property {string} reason why it needs approval
 * @property {Field[]} fields
 * @property {Part[]} parts
 */
/** @typedef {{ answer: string, edited: Values, reason: string }} Decision */

/** @type {{ [mark: string]: string }} */
const LINE_CLASSES = { "+": "is-added", "-": "is-removed", "@": "dim" };

/**
 * Return a text with its added and removed lines marked.
 * @param {string} text
 * @param {string} label
 */
export const diffOf = (text, label) => {
  const lines = text.split("\n").map((line) => h("span", { class: LINE_CLASSES[line[0]] ?? "" }, `${line}\n`));
  return h("pre", { class: "diff mono", tabindex: "0", "aria-label": label }, ...lines);
};

/** @param {Part} part */
const partOf = ({ title, text }) =>
  h("div", { class: "part" }, h("div", { class: "dim" }, title), text && diffOf(text, title));

/**
 * Return the buttons of a card, and how they are named once something was changed.
 * @param {string} tool
 * @param {(word: string) => void} answer
 */
const decisionButtons = (tool, answer) => {
  /** @type {(word: string, text: string, kind?: string) => HTMLButtonElement} */
  const button = (word, text, kind) =>
    h("button", { type: "button", class: kind, "data-answer": word, onclick: () => answer(word) }, text);
  const once = button("once", "", "primary");
  const session = button("tool", `Allow ${tool} all session`);
  const content = button("content", "");
  const wait = button("later", "Later");
  const no = button("no", "No", "danger");
  /** @param {boolean} isChanged */
  const name = (isChanged) => {
    once.textContent = isChanged ? "Allow once with these changes" : "Allow once";
    content.textContent = `Allow exactly this${isChanged ? ", as changed," : ""} all session`;
  };
  return { yes: [once, session, content, wait], no, all: [once, session, content, wait, no], name };
};

/**
 * Return the card of a call.
 * @param {Proposal} proposal
 * @param {object} options
 * @param {(edited: Values) => Promise<{ problems: Problems, parts?: Part[] }>} options.check asks the kernel's side
 * @param {(decision: Decision) => Promise<{ problems: Problems }>} options.decide asks the kernel's side
 * @param {Values} [options.draft] what was edited before
 * @param {(edited: Values) => void} [options.save] gets what was edited so far
 */
export const approvalPanel = (proposal, { check, decide, draft = {}, save = () => {} }) => {
  const parts = h("div", {}, ...proposal.parts.map(partOf));
  const failure = h("div", {});
  const reason = h("input", {
    type: "text",
    size: "26",
    placeholder: "why not (the model is told)",
    "aria-label": "Reason of a no",
  });
  /** @param {Values} edited */
  const edit = (edited) => {
    save({ ...edited });
    buttons.name(Object.keys(edited).length > 0);
    look(edited);
  };
  const form = fieldsForm(proposal.fields, { draft, edit });
  /** @param {Values} edited */
  const askAndShow = async (edited) => {
    try {
      const answer = await check({ ...edited });
      form.showProblems(answer.problems);
      if (answer.parts) parts.replaceChildren(...answer.parts.map(partOf));
      showError(failure, null);
    } catch (error) {
      showError(failure, error);
    }
  };
  const look = later(250, askAndShow);
  /** @param {boolean} isOff */
  const disable = (isOff) => {
    for (const each of buttons.all) each.disabled = isOff;
  };
  /** @param {string} word */
  const answer = async (word) => {
    disable(true);
    try {
      const edited = form.edited();
      const { problems } = await decide({ answer: word, edited, reason: word === "no" ? reason.value : "" });
      form.showProblems(problems, true);
      if (word === "later" || Object.keys(problems).length) disable(false);
    } catch (error) {
      disable(false);
      showError(failure, error);
    }
  };
  const buttons = decisionButtons(proposal.tool, answer);
  buttons.name(Object.keys(draft).length > 0);
  if (Object.keys(draft).length) look(draft);
  reason.addEventListener("keydown", ({ key }) => {
    if (key === "Enter") answer("no");
  });
  return h(
    "div",
    { class: "approval", role: "group", "aria-label": `${proposal.tool} asks for approval` },
    headOf(proposal),
    h("div", { class: "inside" }, form.element, parts, h("div", { class: "dim" }, proposal.reason), failure),
    h("div", { class: "bar" }, ...buttons.yes, h("span", { class: "grow" }), reason, buttons.no),
  );
};

/** @param {Proposal} proposal */
const headOf = ({ tool, consequence, caller }) => {
  const pill = h("span", { class: "pill is-warn" }, "needs approval");
  const rest = h("span", { class: "dim" }, `${consequence}, asked for by ${caller}`);
  return h("div", { class: "bar" }, pill, h("code", { class: "mono title" }, tool), rest);
};

/**
 * Return what is there instead of a card that was answered.
 * @param {Proposal} proposal
 * @param {string} message
 * @param {boolean} isOpen it waits for its answer elsewhere
 */
export const answeredLine = (proposal, message, isOpen = false) => {
  const [kind, word] = message.startsWith("allowed") ? ["is-ok", "allowed"] : ["is-bad", "not run"];
  const pill = isOpen ? h("span", { class: "pill is-warn" }, "elsewhere") : h("span", { class: `pill ${kind}` }, word);
  const rest = h("span", { class: "dim" }, ` ${message}`);
  const fields = proposal.fields.map(({ name, value }) => {
    const text = h("pre", { class: "mono", tabindex: "0", "aria-label": name }, String(value));
    return h("div", { class: "part" }, h("div", { class: "dim" }, name), text);
  });
  return h(
    "details",
    { class: "answered" },
    h("summary", {}, pill, " ", h("code", { class: "mono" }, proposal.tool), rest),
    h("div", { class: "inside" }, ...fields, ...proposal.parts.map(partOf)),
  );
};
