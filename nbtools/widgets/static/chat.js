// A conversation with an agent: text as it is written, a card for each call, approvals and questions in their place.
import { answeredLine, approvalPanel } from "./approval.js";
import { Link } from "./link.js";
import { h, insertCell, mount, onChange, showError } from "./shared.js";

/** @import { Proposal } from "./approval.js" */
/** @import { Values } from "./fields.js" */
/** @import { Model, Picture, View } from "./shared.js" */

/**
 * One thing in a conversation, as Python's `ChatView` describes it; `kind` says which of the others are there.
 * @typedef {object} Item
 * @property {string} id
 * @property {"user" | "text" | "note" | "call" | "approval" | "question" | "end"} kind
 * @property {string} text
 * @property {string} state
 * @property {string} tool
 * @property {number} [seconds]
 * @property {string} line
 * @property {string} [given] the arguments of a call, as text
 * @property {string} [code] a cell that makes the same call
 * @property {Picture[]} [pictures]
 * @property {Proposal} asked
 * @property {string} told
 * @property {string[]} choices
 * @property {string} [error]
 * @property {boolean} is_last
 * @property {string} run
 */
/** @typedef {{ tool: string, target: string, undone: boolean, why: string }} UndoRow */

/** @type {{ [state: string]: string }} */
const TONES = {
  done: "is-ok",
  failed: "is-bad",
  starting: "is-run",
  running: "is-run",
  pending: "is-warn",
  waits: "is-warn",
  elsewhere: "is-run",
};
/** @type {{ [state: string]: string }} */
const STATES = {
  starting: "starting",
  running: "at work",
  pending: "waits for you",
  elsewhere: "goes on elsewhere",
};
const LOOK_MS = 2000;
// Pixels from the end of the log, up to which a reader follows it.
const END_PX = 40;

/** The view of a conversation: what its drawing needs, and what is drawn of it so far. */
class Chat {
  /**
   * @param {Model} model
   * @param {Link} link
   * @param {HTMLElement} root
   */
  constructor(model, link, root) {
    this.model = model;
    this.link = link;
    this.root = root;
    this.failure = h("div", {});
    const live = { role: "log", "aria-live": "polite", "aria-label": "Conversation" };
    this.log = h("div", { class: "log", tabindex: "0", ...live });
    /** Texts that grow, by the item. @type {Map<string, string>} */
    this.texts = new Map();
    /** What a person edited in a card that still waits, by the item. @type {Map<string, Values>} */
    this.drafts = new Map();
    /**
     * What is drawn, by the item: its element, and the item as text.
     * @type {Map<string, { element: HTMLElement, key: string }>}
     */
    this.drawn = new Map();
  }

  /**
   * Ask the kernel's side, and show what fails.
   * @param {string} name
   * @param {object} [details]
   */
  async ask(name, details) {
    try {
      showError(this.failure, null);
      await this.link.ask(name, details);
      return true;
    } catch (error) {
      showError(this.failure, error);
      return false;
    }
  }

  /**
   * Do something to the log; a reader who is at its end stays there.
   * @param {() => void} work
   */
  follow(work) {
    const { log } = this;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < END_PX;
    work();
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  /** Draw the items that changed. */
  paint() {
    for (const item of this.model.get("items")) {
      const key = JSON.stringify(item);
      const old = this.drawn.get(item.id);
      if (old?.key === key) continue;
      const element = DRAW[/** @type {Item} */ (item).kind](item, this);
      if (old?.element instanceof HTMLDetailsElement && old.element.open) element.setAttribute("open", "");
      if (old) old.element.replaceWith(element);
      else this.log.append(element);
      this.drawn.set(item.id, { element, key });
    }
  }

  /**
   * Show a text that grew.
   * @param {string} text
   * @param {string} id of the item
   */
  grow(text, id) {
    this.texts.set(id, text);
    const node = this.drawn.get(id)?.element.firstChild;
    if (!(node instanceof Text)) return;
    // A selection in the text stays where it was.
    if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
    else node.data = text;
  }
}

/**
 * @param {Item} item
 * @param {Chat} chat
 */
const drawCall = (item, chat) => {
  const seconds = item.seconds != null ? ` ${item.seconds.toFixed(2)} s  ${item.line}` : "";
  const pill = h("span", { class: `pill ${TONES[item.state] ?? ""}` }, item.state);
  const summary = h("summary", {}, pill, " ", h("code", {}, item.tool), h("span", { class: "dim" }, seconds));
  const details = [h("pre", { tabindex: "0", "aria-label": "Arguments" }, item.given ?? "")];
  if (item.text) details.push(h("pre", { tabindex: "0", "aria-label": "Result" }, item.text));
  const insert = () => insertCell(chat.root, item.code ?? "");
  const keep = { type: "button", class: "keep", onclick: insert };
  const cell = item.code && h("div", {}, h("button", keep, "Insert as cell"));
  const pictures = (item.pictures ?? []).map((each) => h("img", { src: each.uri, alt: each.name }));
  const inside = h("div", { class: "inside" }, ...details, cell);
  return h("details", { class: "call", "data-state": item.state }, summary, inside, ...pictures);
};

/**
 * @param {Item} item
 * @param {Chat} chat
 */
const drawApproval = ({ id, state, asked: proposal, told: message }, { link, drafts }) => {
  if (state !== "asking") return answeredLine(proposal, message, state === "elsewhere");
  return approvalPanel(proposal, {
    check: (edited) => link.ask("check", { id, edited }),
    decide: (decision) => link.ask("decide", { id, ...decision }),
    draft: drafts.get(id) ?? {},
    save: (edited) => drafts.set(id, edited),
  });
};

/**
 * @param {Item} item
 * @param {Chat} chat
 */
const drawQuestion = (item, chat) => {
  if (item.told) return h("div", { class: "dim" }, `${item.text} ${item.told}`);
  /** @param {string} answer */
  const tell = (answer) => answer && chat.ask("tell", { id: item.id, answer });
  const field = h("input", { type: "text", "aria-label": item.text });
  field.addEventListener("keydown", ({ key }) => {
    if (key === "Enter") tell(field.value);
  });
  const send = h("button", { type: "button", onclick: () => tell(field.value) }, "Answer");
  const choices = item.choices.map((each) => h("button", { type: "button", onclick: () => tell(each) }, each));
  const answers = h("div", { class: "answers" }, ...(choices.length ? choices : [field, send]));
  const group = { class: "question", role: "group", "aria-label": "The agent asks" };
  return h("div", group, h("strong", {}, item.text), answers);
};

/**
 * Return what an undo did, as a table.
 * @param {UndoRow[]} rows
 */
const undoTable = (rows) => {
  if (!rows.length) return h("span", { class: "dim" }, "The run changed nothing.");
  const heads = ["tool", "target", "what became of it"].map((each) => h("th", { scope: "col" }, each));
  const lines = rows.map(({ tool, target, undone, why }) =>
    h("tr", {}, h("td", {}, tool), h("td", {}, target), h("td", {}, undone ? why || "taken back" : `left: ${why}`)),
  );
  return h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...lines));
};

/**
 * Return the button that takes back what a run changed, and where it says what became of it.
 * @param {Item} item
 * @param {Chat} chat
 */
const undoOf = (item, { link }) => {
  const outcome = h("div", {});
  const onclick = async () => {
    button.disabled = true;
    try {
      outcome.replaceChildren(undoTable(await link.ask("undo", { run: item.run })));
      outcome.scrollIntoView({ block: "nearest" });
    } catch (error) {
      button.disabled = false;
      showError(outcome, error);
    }
  };
  const button = h("button", { type: "button", class: "take-back", onclick }, "Undo what it changed");
  return [button, outcome];
};

/** How each kind of item is drawn. @type {{ [K in Item["kind"]]: (item: Item, chat: Chat) => HTMLElement }} */
const DRAW = {
  user: (item) => h("div", { class: "message is-user" }, item.text),
  text: (item, { texts }) => {
    const element = h("div", { class: "message", "data-text": item.id });
    element.append(document.createTextNode(texts.get(item.id) ?? ""));
    return element;
  },
  note: (item) => h("div", { class: "dim" }, item.text),
  call: drawCall,
  approval: drawApproval,
  question: drawQuestion,
  end: (item, chat) => {
    const error = item.error && h("div", { class: "notice is-error" }, item.error);
    const onclick = () => chat.ask("resume");
    const resume = item.is_last && item.error && h("button", { type: "button", onclick }, "Resume");
    const undo = item.is_last ? undoOf(item, chat) : [];
    return h("div", { class: "dim end" }, error, h("div", {}, item.text), resume, ...undo);
  },
};

/**
 * Return the bar in which a person writes.
 * @param {Chat} chat
 */
const composeBar = (chat) => {
  const placeholder = "Ask about your data. Enter sends, Shift+Enter makes a new line.";
  const box = h("textarea", { rows: "2", "aria-label": "Message", placeholder });
  const send = async () => {
    const text = box.value.trim();
    if (!text) return;
    box.value = "";
    if (!(await chat.ask("send", { text }))) box.value ||= text;
  };
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  const button = h("button", { type: "button", class: "primary", onclick: send }, "Send");
  return h("div", { class: "bar compose" }, box, button);
};

/**
 * Look now and then at what waits: it may be answered in another cell or process. One look at a time, which a busy
 * kernel answers late.
 * @param {Chat} chat
 * @param {AbortSignal | undefined} signal
 */
const lookNowAndThen = ({ model, link, failure }, signal) => {
  let isLooking = false;
  const look = async () => {
    if (isLooking || document.hidden || !["pending", "elsewhere"].includes(model.get("state"))) return;
    isLooking = true;
    try {
      await link.ask("look");
    } catch (error) {
      showError(failure, error);
    }
    isLooking = false;
  };
  const clock = setInterval(look, LOOK_MS);
  signal?.addEventListener("abort", () => clearInterval(clock));
};

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const resumeCell = () => {
      const run = model.get("run_id");
      return run && model.get("state") === "pending" ? `%load_ext nbtools\n%agent resume ${run}` : null;
    };
    const goOn = { label: "Insert a cell to continue", text: resumeCell };
    const root = mount(el, model, model.get("title"), signal, goOn);
    const link = new Link(model, root, signal);
    const chat = new Chat(model, link, root);
    const pill = h("span", { class: "pill" });
    const onStop = () => chat.ask("stop");
    const stop = h("button", { type: "button", class: "danger", onclick: onStop }, "Stop");
    const title = h("span", { class: "title" }, model.get("title"));
    root.append(h("div", { class: "bar" }, title, pill, h("span", { class: "grow" }), stop), chat.log, chat.failure);
    if (model.get("can_write")) root.append(composeBar(chat));
    const paint = () => {
      const state = model.get("state");
      const idle = model.get("can_write") ? "ready" : "over";
      pill.className = `pill ${TONES[state] ?? ""}`;
      pill.textContent = state === "idle" ? idle : (STATES[state] ?? state);
      stop.hidden = state !== "running";
      chat.follow(() => chat.paint());
    };
    link.text("*", (text, id) => chat.follow(() => chat.grow(text, id)));
    onChange(model, ["items", "state"], paint, signal);
    lookNowAndThen(chat, signal);
    paint();
    link.ready();
  },
};
