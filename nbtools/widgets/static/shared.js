// What all widgets share: elements, the theme, keys, errors, cells.

/**
 * The model of a widget, as anywidget hands it out.
 * @typedef {object} Model
 * @property {(name: string) => any} get
 * @property {(name: string, value: unknown) => void} set
 * @property {() => void} save_changes
 * @property {(name: string, run: (...details: any[]) => void) => void} on
 * @property {(name: string, run: (...details: any[]) => void) => void} off
 * @property {(message: object) => void} send
 */

/** @typedef {{ model: Model, el: HTMLElement, signal?: AbortSignal }} View what anywidget's `render` gets */
/** @typedef {Node | string | false | null | undefined} Child */
/** @typedef {{ [name: string]: any }} Properties */

/**
 * A picture, with its data in the address.
 * @typedef {{ uri: string, name: string }} Picture
 */

/**
 * Return an element. `on…` are listeners, other properties attributes; children that are text stay text.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Properties} properties
 * @param {...(Child | Child[])} children
 */
export const h = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);

/**
 * Return an element of SVG.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Properties} properties
 * @param {...Child} children
 */
export const svg = (tag, properties = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);

/**
 * @template {Element} T
 * @param {T} element
 * @param {Properties} properties
 * @param {(Child | Child[])[]} children
 * @returns {T}
 */
export const fill = (element, properties, children) => {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") Object.assign(element, { value });
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const each of children.flat()) if (each != null && each !== false) element.append(each);
  return element;
};

/** Return whether the page is dark: JupyterLab, VS Code, Colab, marimo, then the system. */
export const isDark = () => {
  const { body, documentElement } = document;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (body.dataset.vscodeThemeKind) return /dark|high-contrast(?!-light)/.test(body.dataset.vscodeThemeKind);
  for (const element of [body, documentElement]) {
    for (const theme of ["dark", "light"]) {
      if (element.getAttribute("theme") === theme || element.classList.contains(theme)) return theme === "dark";
    }
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
};

/**
 * Return a notice with a button that takes it away.
 * @param {string} name
 * @param {...Child} children
 */
export const closable = (name, ...children) => {
  const close = h("button", { type: "button", onclick: () => notice.remove() }, "Close");
  const notice = h("div", { class: `notice ${name}`, role: "status" }, ...children, close);
  return notice;
};

const ALL_KEYS = "Tab: next field or button\nEnter, Space: press it\nEscape: close\n?: this list";

/**
 * Show the keys of a widget, or hide them; a widget names those of its own in `data-keys`, one a line.
 * @param {HTMLElement} root
 * @param {boolean} [isOver] whether they are hidden in any case
 */
const toggleKeys = (root, isOver) => {
  const before = root.querySelector(":scope > .keys");
  if (before || isOver) return before?.remove();
  const lines = `${root.dataset.keys ?? ""}\n${ALL_KEYS}`.trim().split("\n");
  const pairs = lines.map((line) => line.split(/: (.*)/)).map(([keys, act]) => [h("dt", {}, keys), h("dd", {}, act)]);
  const list = closable("keys", h("b", {}, "Keys"), h("dl", {}, ...pairs));
  root.append(list);
  list.scrollIntoView({ block: "nearest" });
};

/**
 * Keep keys from JupyterLab, which would take them for the notebook; return what stops that.
 * @param {HTMLElement} root
 */
const guardKeys = (root) => {
  // JupyterLab listens behind this element. Notebook 7 listens before, and heeds an attribute of the target.
  /** @param {KeyboardEvent} event */
  const isOurs = ({ key, ctrlKey, metaKey }) => (!ctrlKey && !metaKey) || /^(Enter|Arrow.*|Home|End|a|c)$/.test(key);
  /** @param {KeyboardEvent} event */
  const mark = (event) => {
    const { target } = event;
    if (!(target instanceof Element) || !root.contains(target)) return;
    target.toggleAttribute("data-lm-suppress-shortcuts", isOurs(event));
  };
  window.addEventListener("keydown", mark, true);
  root.addEventListener("keydown", (event) => {
    const { target, key } = event;
    const isTyping = target instanceof Element && target.matches("input:not([type=checkbox]), textarea, select");
    const isOver = key === "Escape";
    if (isOver || (key === "?" && !isTyping)) toggleKeys(root, isOver);
    if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
  });
  return () => window.removeEventListener("keydown", mark, true);
};

/**
 * Give an element the theme of the page, whenever that changes; return what stops that.
 * @param {HTMLElement} root
 */
const followTheme = (root) => {
  const paint = () => {
    root.dataset.theme = isDark() ? "dark" : "light";
  };
  const watcher = new MutationObserver(paint);
  const attributeFilter = ["data-jp-theme-light", "data-vscode-theme-kind", "theme", "class"];
  for (const each of [document.body, document.documentElement]) watcher.observe(each, { attributeFilter });
  paint();
  return () => watcher.disconnect();
};

/**
 * How to go on after a restart where running the cell again would not: a label, and the text of a cell.
 * @typedef {{ label: string, text: () => string | null }} GoOn
 */

/**
 * Say that the kernel's side of a widget is lost.
 * @param {HTMLElement} root
 * @param {GoOn | null} goOn
 */
const showLost = (root, goOn) => {
  if (root.querySelector(":scope > .lost")) return;
  const code = goOn?.text();
  const runAll = () => runCommands(root, ["notebook:run-all-above", "notebook:run-cell"]);
  const run = () => runCommands(root, ["notebook:run-cell"]);
  const buttons = code
    ? [h("button", { type: "button", onclick: () => insertCell(root, code) }, goOn?.label)]
    : [
        h("button", { type: "button", onclick: runAll }, "Run all above, then it"),
        h("button", { type: "button", onclick: run }, "Run the cell again"),
      ];
  const notice = "The kernel was restarted: this shows what it had before. ";
  const rest = code ? "" : "Running the cell again needs %load_ext nbtools first. ";
  root.prepend(h("div", { class: "notice lost", role: "status" }, notice, rest, ...buttons));
  showSilence(root, "");
};

/**
 * Say that no kernel answers, or no longer with an empty text; what is there stays, in grey.
 * @param {HTMLElement} root
 * @param {string} text
 */
export const showSilence = (root, text) => {
  const before = root.querySelector(":scope > .silence");
  if (before?.textContent === text) return;
  before?.remove();
  root.toggleAttribute("data-silent", Boolean(text));
  if (text) root.prepend(h("div", { class: "notice silence", role: "status" }, text));
};

/**
 * Return the root of a widget, inside `el`.
 * @param {HTMLElement} el
 * @param {Model} model
 * @param {string} label
 * @param {AbortSignal | undefined} signal aborts when the view is removed
 * @param {GoOn | null} goOn
 */
export const mount = (el, model, label, signal, goOn = null) => {
  const readOnly = model.get("read_only") ? "" : null;
  const root = h("div", { class: "nbt", role: "group", "aria-label": label, "data-read-only": readOnly });
  const releaseKeys = guardKeys(root);
  const leaveTheme = followTheme(root);
  // ipywidgets fires this when the kernel's side of this widget is lost.
  const onLost = () => showLost(root, goOn);
  model.on("comm_live_update", onLost);
  // What is saved comes after the view.
  const saved = `[data-nbt-saved="${model.get("saved_as") || "-"}"]`;
  const hiding = h("style", {}, `${saved}, .jp-OutputArea-child:has(${saved}) { display: none }`);
  signal?.addEventListener("abort", () => {
    releaseKeys();
    leaveTheme();
    model.off("comm_live_update", onLost);
    hiding.remove();
  });
  el.append(root, hiding);
  // Once the widget has put its first line together.
  const keys = { type: "button", class: "plain help", "aria-label": "Keys", onclick: () => toggleKeys(root) };
  queueMicrotask(() => root.querySelector(".bar")?.append(h("button", keys, "?")));
  return root;
};

/**
 * Show an error inside an element, or take it away with null.
 * @param {Element} element
 * @param {{ message: string, hint?: string, stopped?: boolean, byKernel?: boolean } | null} error
 */
export const showError = (element, error) => {
  element.replaceChildren();
  if (!error || (error.stopped && !error.byKernel)) return;
  const hint = error.hint && h("span", { class: "dim" }, `→ ${error.hint}`);
  // Carets stand below their word where all letters are as wide.
  const [what, ...pointed] = error.message.split(/\n(?= {4})/);
  const carets = h("span", { class: "mono pointed" }, pointed.join("\n"));
  element.append(h("div", { class: "notice is-error", role: "alert" }, what, carets, hint));
};

/**
 * Call a function at each change of some traits, one listener each: only JupyterLab knows several names in one text.
 * @param {Model} model
 * @param {string[]} names
 * @param {() => void} run
 * @param {AbortSignal | undefined} signal
 */
export const onChange = (model, names, run, signal) => {
  for (const name of names) {
    model.on(`change:${name}`, run);
    signal?.addEventListener("abort", () => model.off(`change:${name}`, run));
  }
};

/** @param {number} value */
export const number = (value) => Number(value).toLocaleString("en");

/**
 * Return a share in percent: never 0 % of what is there, nor 100 % where something else is too.
 * @param {number} part
 * @param {number} whole
 * @param {number} digits
 */
export const percent = (part, whole, digits) => {
  const share = ((100 * part) / Math.max(whole, 1)).toFixed(digits);
  const least = 10 ** -digits;
  if (part > 0 && Number(share) === 0) return `<${least} %`;
  if (part < whole && Number(share) === 100) return `>${(100 - least).toFixed(digits)} %`;
  return `${share} %`;
};

/**
 * Return a number in few letters, such as 100M.
 * @param {number} value
 */
export const few = (value) => Number(value).toLocaleString("en", { notation: "compact" });

/**
 * Return a function that runs the last call of many, once `ms` have passed without another.
 * @template {unknown[]} T
 * @param {number} ms
 * @param {(...details: T) => void} run
 * @returns {(...details: T) => void}
 */
export const later = (ms, run) => {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  return (...details) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...details), ms);
  };
};

/**
 * Put text on the clipboard; pages without https may not, and take the old way.
 * @param {string} text
 */
export const put = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { "aria-hidden": "true", style: "position:fixed;opacity:0" });
    const before = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  }
};

/** Return whether cells may hold magics: those of marimo are Python alone. */
export const hasMagics = () => !customElements.get("marimo-anywidget");

/**
 * Run commands of JupyterLab in the cell of a widget, which becomes the active one.
 * @param {HTMLElement} root
 * @param {string[]} commands
 */
const runCommands = (root, commands) => {
  const editor = root.closest(".jp-Cell")?.querySelector(".jp-InputArea-editor, .jp-Cell-inputWrapper");
  editor?.dispatchEvent(new MouseEvent("mousedown", { bubbles: true }));
  for (const command of commands) {
    const properties = { "data-commandlinker-command": command, "data-commandlinker-args": "{}" };
    const button = h("button", { hidden: true, ...properties });
    root.append(button);
    button.click();
    button.remove();
  }
};

/**
 * Let our extension of JupyterLab insert a cell below the widget's, and return whether it did. It is not run.
 * @param {HTMLElement} root
 * @param {string} text
 */
const isInserted = (root, text) =>
  !root.dispatchEvent(new CustomEvent("nbtools", { bubbles: true, cancelable: true, detail: text }));

/**
 * Insert a cell with a text below the widget's; where nothing can, copy the text and show it.
 * @param {HTMLElement} root
 * @param {string} text
 * @param {string} python the same without magics, where a text has some; marimo imports a module in one cell alone
 */
export const insertCell = (root, text, python = text) => {
  if (isInserted(root, text)) return;
  root.querySelector(":scope > .paste")?.remove();
  const code = hasMagics() ? text : python.replace(/^import nbtools\n+/, "");
  const cell = h("pre", { class: "mono", tabindex: "0", "aria-label": "Cell" }, code);
  root.append(closable("paste", "Copied for a cell:", cell));
  put(code);
};

/**
 * Return a choice among columns, and what offers others: what was chosen is kept while its column is away.
 * @param {string} label
 * @param {string} none what no choice is called
 */
export const columnChoice = (label, none) => {
  let wish = "";
  const element = h("select", { "aria-label": label });
  /** @param {string} name */
  const choose = (name) => {
    wish = name;
    element.value = name;
  };
  element.addEventListener("change", () => choose(element.value));
  /** @param {string[]} names */
  const offer = (names) => {
    element.replaceChildren(...["", ...names].map((value) => h("option", { value }, value || none)));
    element.value = names.includes(wish) ? wish : "";
  };
  offer([]);
  return { element, choose, offer };
};

/**
 * Run something by Enter in a line, and by Enter with Ctrl, Shift or Command in a text of lines.
 * @param {HTMLElement} element
 * @param {() => void} run
 */
export const runByKey = (element, run) =>
  element.addEventListener("keydown", (event) => {
    const isLine = event.target instanceof HTMLInputElement;
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey || event.shiftKey || isLine)) return;
    event.preventDefault();
    event.stopPropagation();
    run();
  });

/**
 * Return a button that stops what runs.
 * @param {() => AbortController | null} running
 */
export const stopButton = (running) =>
  h("button", { class: "danger", hidden: true, onclick: () => running()?.abort() }, "Stop");
