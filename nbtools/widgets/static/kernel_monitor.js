// The sessions: state, age, CPU, memory, and what can be done with them.
import { Link } from "./link.js";
import { h, mount, showError } from "./shared.js";

/** @import { View } from "./shared.js" */

/**
 * A session, as Python's `KernelMonitor` describes it.
 * @typedef {object} Session
 * @property {string} name
 * @property {string} [state]
 * @property {string} [language]
 * @property {number} [pid]
 * @property {string | null} [copy_of]
 * @property {number} [age_s]
 * @property {number} [cpu_s]
 * @property {number} [memory_bytes]
 * @property {string} [last_call]
 */

/** @type {{ [state: string]: string }} */
const TONES = { idle: "is-ok", busy: "is-run", dead: "is-bad" };
const HEADS = ["name", "state", "age", "CPU", "memory", "last call", "actions"];
const LOOK_MS = 1000;
const SURE_MS = 4000;
// A share of CPU over less time jumps.
const LEAST_S = 0.5;

/**
 * Return a duration in words.
 * @param {number | null | undefined} seconds
 */
const duration = (seconds) => {
  if (seconds == null) return "";
  if (seconds < 60) return `${seconds.toFixed(0)} s`;
  if (seconds >= 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.floor(seconds / 60)} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
};

/**
 * Return the processor time of a session in words, with the share of the time since it was looked at before.
 * @param {Session} session
 * @param {{ at: number, cpu: number | undefined } | null} before
 * @param {number} now seconds
 */
const cpuOf = ({ cpu_s: cpu }, before, now) => {
  if (cpu == null) return "";
  if (!before || before.cpu == null || now <= before.at) return `${cpu.toFixed(1)} s`;
  const share = Math.max(0, (100 * (cpu - before.cpu)) / (now - before.at));
  return `${share.toFixed(0)} %, ${cpu.toFixed(1)} s`;
};

/**
 * Return a button that asks once more in its own place, for what loses variables.
 * @param {string} label
 * @param {string} session
 * @param {(button: HTMLButtonElement) => void} act
 */
const sureButton = (label, session, act) => {
  const reset = () => {
    delete button.dataset.sure;
    button.textContent = label;
  };
  const onclick = () => {
    if (button.dataset.sure) {
      reset();
      act(button);
      return;
    }
    button.dataset.sure = "yes";
    button.textContent = "Loses its variables: sure?";
    setTimeout(reset, SURE_MS);
  };
  const button = h("button", { type: "button", class: "danger", "aria-label": `${label} ${session}`, onclick }, label);
  return button;
};

/** A row of the table. */
class SessionRow {
  /**
   * @param {string} name
   * @param {(verb: string, session: string, button: HTMLButtonElement) => void} change
   */
  constructor(name, change) {
    this.cells = { state: h("td"), age: h("td"), cpu: h("td"), memory: h("td"), last: h("td") };
    /** @type {{ at: number, cpu: number | undefined } | null} */
    this.before = null;
    const onclick = () => change("interrupt", name, stop);
    const stop = h("button", { type: "button", "aria-label": `Stop ${name}`, onclick }, "Stop");
    const restart = sureButton("Restart", name, (button) => change("restart", name, button));
    const kill = sureButton("Kill", name, (button) => change("stop", name, button));
    const actions = h("td", {}, h("span", { class: "answers" }, stop, restart, kill));
    const head = h("th", { scope: "row" }, h("strong", {}, name));
    this.element = h("tr", {}, head, ...Object.values(this.cells), actions);
  }

  /**
   * @param {Session} session
   * @param {number} now seconds
   */
  paint(session, now) {
    const { cells, before } = this;
    const { state = "", pid, language, memory_bytes: memory, copy_of: original } = session;
    const about = [pid ? ` ${language}, pid ${pid}` : "", original ? ` copy of ${original}` : ""];
    const pill = h("span", { class: `pill ${TONES[state] ?? ""}` }, state);
    cells.state.replaceChildren(pill, h("span", { class: "dim" }, about.filter(Boolean).join(",")));
    cells.age.textContent = duration(session.age_s);
    cells.cpu.textContent = cpuOf(session, before, now);
    cells.memory.textContent = memory == null ? "" : `${(memory / 2 ** 20).toFixed(0)} MiB`;
    cells.last.textContent = session.last_call ?? "";
    if (!before || now - before.at > LEAST_S) this.before = { at: now, cpu: session.cpu_s };
  }
}

/**
 * Return the table of the sessions, and what shows them in it.
 * @param {(verb: string, session: string, button: HTMLButtonElement) => void} change
 */
const sessionTable = (change) => {
  const body = h("tbody");
  const heads = HEADS.map((each) => h("th", { scope: "col" }, each));
  const table = h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ...heads)), body);
  const element = h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Sessions" }, table);
  const hint = "A script runs in a new kernel each time; with --session NAME in one that keeps its variables.";
  const empty = h("div", { class: "inside dim" }, `No sessions yet. ${hint}`);
  /** @type {Map<string, SessionRow>} */
  const rows = new Map();
  /** @param {Session[]} sessions */
  const paint = (sessions) => {
    const now = performance.now() / 1000;
    const names = new Set(sessions.map((each) => each.name));
    element.hidden = !sessions.length;
    empty.hidden = !element.hidden;
    for (const [name, row] of rows) {
      if (names.has(name)) continue;
      row.element.remove();
      rows.delete(name);
    }
    for (const each of sessions) {
      const row = rows.get(each.name) ?? new SessionRow(each.name, change);
      if (!rows.has(each.name)) body.append(row.element);
      rows.set(each.name, row);
      row.paint(each, now);
    }
  };
  return { elements: [element, empty], paint };
};

/**
 * Return the bar with the field in which a session is named, and its button.
 * @param {(session: string) => Promise<void>} start
 */
const startBar = (start) => {
  const label = "Name of a new session";
  const placeholder = "name of a session";
  const input = h("input", { type: "text", class: "new", placeholder, "aria-label": label });
  const onclick = async () => {
    const name = input.value.trim();
    if (!name) return;
    await start(name);
    input.value = "";
  };
  input.addEventListener("keydown", ({ key }) => {
    if (key === "Enter") onclick();
  });
  const title = h("span", { class: "title" }, "Kernels");
  const button = h("button", { type: "button", class: "new", onclick }, "Start");
  return h("div", { class: "bar" }, title, h("span", { class: "grow" }), input, button);
};

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const root = mount(el, model, "Kernels", signal);
    const link = new Link(model, root, signal);
    const failure = h("div", {});
    /** @type {(verb: string, session: string, button?: HTMLButtonElement) => Promise<void>} */
    const change = async (verb, session, button) => {
      if (button) button.disabled = true;
      try {
        await link.ask("change", { verb, session });
        showError(failure, null);
      } catch (error) {
        showError(failure, error);
      }
      if (button) button.disabled = false;
      await look();
    };
    const table = sessionTable(change);
    root.append(
      startBar((session) => change("start", session)),
      failure,
      ...table.elements,
    );
    let isLooking = false;
    const look = async () => {
      if (isLooking || document.hidden || signal?.aborted) return;
      isLooking = true;
      try {
        table.paint(await link.ask("list"));
      } catch (error) {
        showError(failure, error);
      }
      isLooking = false;
    };
    const clock = setInterval(look, LOOK_MS);
    signal?.addEventListener("abort", () => clearInterval(clock));
    table.paint(model.get("rows"));
    link.ready();
    look();
  },
};
