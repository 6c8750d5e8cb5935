// Notes: searched while one types, by tags and scope; edited, deleted, restored.
import { diffOf } from "./approval.js";
import { fieldsForm } from "./fields.js";
import { Link } from "./link.js";
import { h, later, mount, number, showError } from "./shared.js";

/** @import { Field } from "./fields.js" */
/** @import { Model, View } from "./shared.js" */

/** @typedef {{ key: string, tags: string, value: string }} Row */
/** @typedef {{ rows: Row[], total: number, tags: [tag: string, count: number][] }} Listing */
/** @typedef {{ version: number, change: string, when: string, difference: string }} Version */
/**
 * A note, as Python's `MemoryBrowser` opens it.
 * @typedef {object} Note
 * @property {string} key
 * @property {string} text
 * @property {boolean} is_json
 * @property {string} tags
 * @property {number} version
 * @property {string} updated
 * @property {string} expires
 * @property {Version[]} versions
 * @property {Preview} [preview] of a table, or another value that JSON lacks; neither is edited here
 */
/** @typedef {{ title: string, columns: string[], rows: (string | null)[][], problem: string }} Preview */
/** @typedef {{ version: number, difference: string }} Conflict what was saved meanwhile; version 0 is a deletion */

/**
 * Return a field of a note.
 * @param {string} name
 * @param {Field["kind"]} kind
 * @param {string | boolean} value
 * @param {string} help
 * @returns {Field}
 */
const fieldOf = (name, kind, value, help) => ({
  name,
  kind,
  value,
  default: "",
  help,
  required: name === "key",
  choices: [],
});

/**
 * Return how many notes there are, in words.
 * @param {Listing} listing
 */
const countOf = ({ rows, total }) => {
  if (rows.length < total) return `${number(rows.length)} of ${number(total)} notes`;
  return total === 1 ? "1 note" : `${number(total)} notes`;
};

/** The view of the notes: the words, tags and scope that are searched, the list, and what is open beside it. */
class Browser {
  /**
   * @param {HTMLElement} root
   * @param {Model} model
   * @param {Link} link
   */
  constructor(root, model, link) {
    this.root = root;
    this.link = link;
    const label = "Search notes";
    this.words = h("input", { type: "search", placeholder: "search notes", "aria-label": label });
    const scopes = model.get("scopes").map((/** @type {string} */ each) => h("option", { value: each }, each));
    this.scope = h("select", { "aria-label": "Whose notes" }, ...scopes);
    this.scope.value = model.get("scope");
    this.count = h("span", { class: "dim", role: "status" });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Tags" });
    this.failure = h("div", {});
    this.list = h("ul", { class: "notes", "aria-label": "Notes" });
    this.side = h("div", { class: "side", "aria-live": "polite" });
    /** @type {Set<string>} */
    this.tags = new Set();
    /** The key of the open note. @type {string | null} */
    this.open = null;
    /** Counts searches: a late reply is thrown away. */
    this.searches = 0;
  }

  /**
   * Ask the kernel's side; show what fails, and return null for it.
   * @param {string} name
   * @param {object} details
   */
  async ask(name, details) {
    try {
      showError(this.failure, null);
      return await this.link.ask(name, { ...details, scope: this.scope.value });
    } catch (error) {
      showError(this.failure, error);
      return null;
    }
  }

  async search() {
    const mine = ++this.searches;
    const listing = await this.ask("find", { words: this.words.value, tags: [...this.tags] });
    if (listing && mine === this.searches) this.paint(listing);
  }

  /** @param {string} key */
  async show(key) {
    const note = await this.ask("open", { key });
    if (note) this.edit(note);
  }

  /** @param {string} message */
  clear(message) {
    this.open = null;
    this.side.replaceChildren(h("div", { class: "inside dim" }, message));
  }

  /**
   * Open a note, or a new one with null.
   * @param {Note | null} note
   */
  edit(note) {
    this.open = note?.key ?? null;
    for (const each of this.buttons()) {
      if (each.dataset.key === this.open) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
    showNote(this, note);
  }

  /** Return the buttons of the list. @returns {HTMLElement[]} */
  buttons() {
    return [...this.list.querySelectorAll("button")];
  }

  /** @param {Listing} listing */
  paint(listing) {
    this.count.textContent = countOf(listing);
    this.chips.replaceChildren(...listing.tags.map(([tag, count]) => this.chip(tag, count)));
    const focused = this.focusedButton()?.dataset.key;
    this.list.replaceChildren(...listing.rows.map((row) => this.row(row)));
    if (focused !== undefined) {
      this.buttons()
        .find((each) => each.dataset.key === focused)
        ?.focus();
    }
    if (listing.rows.length) return;
    this.list.append(h("li", { class: "inside dim" }, listing.total ? "No notes fit." : "No notes yet."));
  }

  /** Return the button of the list that has the focus. */
  focusedButton() {
    const { activeElement } = /** @type {Document | ShadowRoot} */ (this.root.getRootNode());
    return this.buttons().find((each) => each === activeElement);
  }

  /**
   * @param {string} tag
   * @param {number} count
   */
  chip(tag, count) {
    const onclick = async () => {
      if (!this.tags.delete(tag)) this.tags.add(tag);
      await this.search();
      const chips = [...this.chips.querySelectorAll("button")];
      chips.find((each) => each.dataset.tag === tag)?.focus();
    };
    const isPressed = String(this.tags.has(tag));
    const properties = { type: "button", class: "chip", "aria-pressed": isPressed, onclick, "data-tag": tag };
    return h("button", properties, tag, h("span", { class: "dim" }, ` ${count}`));
  }

  /** @param {Row} row */
  row({ key, tags, value }) {
    const onclick = () => this.show(key);
    const isOpen = key === this.open ? "true" : null;
    const properties = { type: "button", class: "note plain", "data-key": key, "aria-current": isOpen, onclick };
    const name = h("span", { class: "mono" }, key);
    const words = tags && h("span", { class: "dim" }, ` ${tags}`);
    return h("li", {}, h("button", properties, name, words, h("span", { class: "value dim" }, value)));
  }

  /**
   * Follow the arrow keys in the list.
   * @param {KeyboardEvent} event
   */
  followKeys(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = this.buttons();
    const at = all.findIndex((each) => each === this.focusedButton());
    all[Math.max(0, Math.min(all.length - 1, at + step))]?.focus();
  }
}

/**
 * Put a version of a note back.
 * @param {Browser} browser
 * @param {{ key: string, version?: number }} details without a version, the one before it was deleted
 */
const restore = async (browser, details) => {
  const note = await browser.ask("restore", details);
  if (!note) return;
  browser.edit(note);
  await browser.search();
};

/**
 * Delete a note, and offer to undo that.
 * @param {Browser} browser
 * @param {Note} note
 */
const erase = async (browser, { key, version }) => {
  const { failure, link, scope, side } = browser;
  try {
    showError(failure, null);
    await link.ask("delete", { key, version, scope: scope.value });
  } catch (error) {
    showError(failure, error);
    return;
  }
  const onclick = () => restore(browser, { key });
  const undo = h("button", { type: "button", class: "primary", onclick }, "Undo");
  const message = `The note ${key} is deleted; its history stays.`;
  browser.open = null;
  side.replaceChildren(h("div", { class: "notice", role: "status" }, message, undo));
  undo.focus();
  await browser.search();
};

/**
 * Return the versions of a note, each with a button that restores it.
 * @param {Browser} browser
 * @param {Note} note
 */
const historyOf = (browser, { key, version: current, versions }) => {
  const parts = versions.map(({ version, change, when, difference }) => {
    const onclick = () => restore(browser, { key, version });
    const properties = { type: "button", class: "restore", "aria-label": `Restore version ${version}`, onclick };
    const hasValue = version !== current && change !== "delete" && change !== "expire";
    const button = hasValue && h("button", properties, "Restore");
    const about = h("span", { class: "dim" }, ` ${change}, ${when} `);
    const head = h("div", {}, h("strong", {}, `version ${version}`), about, button);
    return h("div", { class: "part inside" }, head, difference && diffOf(difference, `Changes of version ${version}`));
  });
  const title = `History: ${versions.length} version${versions.length > 1 ? "s" : ""}`;
  return h("details", {}, h("summary", {}, title), ...parts);
};

/**
 * Return the form of a note: its element, where it says what someone else saved, and a function that saves it.
 * @param {Browser} browser
 * @param {Note | null} note
 */
const noteForm = (browser, note) => {
  let version = note?.version ?? 0;
  const fields = [
    fieldOf("value", "lines", note?.text ?? "", ""),
    fieldOf("JSON", "flag", note?.is_json ?? false, "the value is JSON, not text"),
    fieldOf("tags", "text", note?.tags ?? "", "words with spaces between"),
  ];
  if (!note) fields.unshift(fieldOf("key", "text", "", "name of the note"));
  const form = fieldsForm(fields);
  const conflict = h("div", {});
  /** @returns {{ [name: string]: any }} */
  const values = () => ({ ...Object.fromEntries(fields.map((each) => [each.name, each.value])), ...form.edited() });
  const keyOf = () => note?.key ?? values().key;
  const save = async () => {
    const { value: text, JSON: is_json, tags } = values();
    const answer = await browser.ask("save", { key: keyOf(), text, is_json, tags, version });
    if (!answer) return;
    if (answer.problems) form.showProblems(answer.problems, true);
    else if (answer.conflict) showConflict(answer.conflict);
    else {
      browser.edit(answer);
      await browser.search();
    }
  };
  /** @param {Conflict} theirs */
  const showConflict = ({ version: saved, difference }) => {
    const message = saved
      ? `Someone else saved version ${saved} meanwhile. Yours differs so:`
      : "Someone else has deleted it meanwhile. Your text is:";
    const onclick = () => {
      version = saved;
      conflict.replaceChildren();
      save();
    };
    const over = h("button", { type: "button", class: "primary", onclick }, "Save mine over it");
    const take = h("button", { type: "button", onclick: () => browser.show(keyOf()) }, "Take theirs");
    const notice = h("div", { class: "notice", role: "alert" }, message, diffOf(difference, "What differs"));
    notice.append(over, ...(saved > 0 ? [take] : []));
    conflict.replaceChildren(notice);
  };
  return { element: form.element, conflict, save };
};

/** @param {Preview} preview */
const previewOf = ({ title, columns, rows, problem }) => {
  const head = h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)));
  const lines = rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", {}, cell ?? "null"))));
  const table = h("table", {}, h("thead", {}, head), h("tbody", {}, ...lines));
  return h(
    "div",
    { class: "preview", tabindex: "0", "aria-label": "Preview" },
    title,
    problem ? h("p", {}, problem) : columns.length > 0 && table,
  );
};

/**
 * Show a note, or the form of a new one, beside the list.
 * @param {Browser} browser
 * @param {Note | null} note
 */
const showNote = (browser, note) => {
  const { element, conflict, save } = noteForm(browser, note);
  const title = h("span", { class: "mono title" }, note?.key ?? "a new note");
  const head = h("div", { class: "bar" }, title);
  const saver = !note?.preview && h("button", { type: "button", class: "primary", onclick: save }, "Save");
  const acts = h("div", { class: "bar" }, saver, h("span", { class: "grow" }));
  const content = note?.preview ? previewOf(note.preview) : element;
  browser.side.replaceChildren(head, h("div", { class: "inside" }, content, conflict), acts);
  if (!note) return;
  const until = note.expires ? `, until ${note.expires}` : "";
  head.append(h("span", { class: "dim" }, `version ${note.version}, ${note.updated}${until}`));
  const onclick = () => erase(browser, note);
  acts.append(h("button", { type: "button", class: "danger", onclick }, "Delete"));
  if (note.versions.length) browser.side.append(historyOf(browser, note));
};

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const root = mount(el, model, "Memory", signal);
    const link = new Link(model, root, signal);
    const browser = new Browser(root, model, link);
    const { words, scope, count, chips, failure, list, side, tags } = browser;
    const title = h("span", { class: "title" }, "Memory");
    const create = h("button", { type: "button", class: "new", onclick: () => browser.edit(null) }, "New note");
    const bar = h("div", { class: "bar" }, title, words, scope, count, h("span", { class: "grow" }), create);
    root.append(bar, chips, failure, h("div", { class: "panes" }, list, side));
    const search = () => browser.search();
    words.addEventListener("input", later(120, search));
    scope.addEventListener("change", () => {
      tags.clear();
      browser.clear("Choose a note.");
      search();
    });
    list.addEventListener("keydown", (event) => browser.followKeys(event));
    browser.clear("Choose a note.");
    browser.paint(model.get("matches"));
    link.ready();
  },
};
