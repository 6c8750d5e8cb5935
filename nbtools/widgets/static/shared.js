// What all widgets share: elements, the theme, messages. It stands before each widget's module, in the same text.

/** Return an element. `on…` are listeners, other properties attributes; children that are text stay text. */
const h = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);
/** Return an element of SVG. */
const svg = (tag, props = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
const fill = (element, props, children) => {
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((each) => each != null && each !== false));
  return element;
};

/** Tell whether the page is dark: JupyterLab, VS Code, Colab, marimo, then the system. */
const isDark = () => {
  const body = document.body, top = document.documentElement;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (body.dataset.vscodeThemeKind) return /dark|high-contrast(?!-light)/.test(body.dataset.vscodeThemeKind);
  for (const each of [body, top]) for (const dark of [true, false]) {
    const word = dark ? "dark" : "light";
    if (each.getAttribute("theme") === word || each.classList.contains(word)) return dark;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
};

/** Return the root of a widget, inside `el`. Plain keys end here: JupyterLab would take them for the notebook.
 * `goOn` says how to go on after a restart where running the cell again would not: a label, and the text of a cell. */
const mount = (el, model, label, signal, goOn = null) => {
  const root = h("div", { class: "nbt", role: "group", "aria-label": label });
  // JupyterLab listens behind this element. Notebook 7 listens before, and heeds an attribute of the target.
  const isOwn = ({ key, ctrlKey, metaKey }) => (!ctrlKey && !metaKey) || /^(Enter|Arrow.*|Home|End|a|c)$/.test(key);
  const tell = (event) => { if (root.contains(event.target)) event.target.toggleAttribute("data-lm-suppress-shortcuts", isOwn(event)); };
  window.addEventListener("keydown", tell, true);
  root.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey) event.stopPropagation(); });
  const paint = () => { root.dataset.theme = isDark() ? "dark" : "light"; };
  const watcher = new MutationObserver(paint);
  for (const each of [document.body, document.documentElement])
    watcher.observe(each, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind", "theme", "class"] });
  paint();
  // ipywidgets tells when the kernel's side of this widget is lost.
  const lost = () => {
    if (root.querySelector(":scope > .lost")) return;
    const code = goOn?.text();
    root.prepend(h("div", { class: "notice lost", role: "status" }, "The kernel was restarted: this shows what it had before. ", code ? "" : "After %load_ext nbtools it can be had anew: ",
      code ? h("button", { type: "button", onclick: () => insertCell(root, code) }, goOn.label)
        : h("button", { "data-commandlinker-command": "notebook:run-cell", "data-commandlinker-args": "{}" }, "Run the cell again")));
  };
  model.on("comm_live_update", lost);
  // What is saved comes after the view.
  const saved = `[data-nbt-saved="${model.get("saved_as") || "-"}"]`;
  const hiding = h("style", {}, `${saved}, .jp-OutputArea-child:has(${saved}) { display: none }`);
  signal?.addEventListener("abort", () => { watcher.disconnect(); window.removeEventListener("keydown", tell, true); model.off("comm_live_update", lost); hiding.remove(); });
  el.append(root, hiding);
  return root;
};

/** An error that the kernel's side replied with. */
class ReplyError extends Error {
  constructor({ message, hint, stopped }) { super(message); this.hint = hint; this.stopped = stopped; }
}

/** Connect a view with the kernel's side. Register `hear` and `text` first, then say `ready()`. */
const connect = (model, signal) => {
  const me = Math.random().toString(36).slice(2), waiting = new Map(), hearers = new Map(), texts = new Map();
  let count = 0, isSeen = false;
  // a kernel that restarts takes none, and the notice says so
  const send = (message) => { try { model.send(message); return true; } catch { return false; } };
  const receive = (message) => {
    const { t, id, name } = message ?? {}, waits = waiting.get(id);
    if (t === "reply" && waits) {
      waiting.delete(id);
      if (message.error) waits.reject(new ReplyError(message.error)); else waits.resolve(message.value);
    } else if (t === "progress") waits?.progress?.(message.share);
    else if (t === "tell") hearers.get(name)?.(message.given);
    else if (t === "seen") isSeen = true;
    else if (t === "text") grow(name, message.offset, message.text);
  };
  const grow = (name, offset, piece) => {
    const known = texts.get(name) ?? { text: "", show: texts.get("*")?.show };
    texts.set(name, known);
    // a piece was lost: all texts come again
    if (offset > known.text.length) return send({ t: "ready" });
    if (offset + piece.length <= known.text.length && offset > 0) return;
    known.text = known.text.slice(0, offset) + piece;
    known.show?.(known.text, name);
  };
  model.on("msg:custom", receive);
  signal?.addEventListener("abort", () => { model.off("msg:custom", receive); for (const id of waiting.keys()) send({ t: "stop", id }); waiting.clear(); });
  return {
    /** Ask; the promise is rejected with a ReplyError. `signal` stops the work, `progress` gets the share that is done. */
    ask: (name, given = {}, { signal: until, progress } = {}) => new Promise((resolve, reject) => {
      const id = `${me}:${count++}`;
      waiting.set(id, { resolve, reject, progress });
      until?.addEventListener("abort", () => {
        if (!waiting.delete(id)) return;
        send({ t: "stop", id });
        reject(new ReplyError({ message: "stopped", hint: "", stopped: true }));
      });
      if (!send({ t: "ask", id, name, given }) && waiting.delete(id)) reject(new ReplyError({ message: "the kernel is gone", hint: "", stopped: true }));
    }),
    /** Call a function when the kernel's side tells something. */
    hear: (name, heard) => { hearers.set(name, heard); },
    /** Call a function with the whole text and its name each time it grew; the name "*" stands for all others. */
    text: (name, show) => { texts.set(name, { text: "", show }); },
    // Until a subshell has started, messages wait for the cell that runs: so it is said again until it was heard.
    ready: () => {
      const say = (wait) => {
        if (isSeen || signal?.aborted) return;
        send({ t: "ready" });
        setTimeout(say, wait, Math.min(2 * wait, 5000));
      };
      say(250);
    },
  };
};

/** Show an error inside an element, or take it away with null. */
const showError = (place, error) => {
  place.replaceChildren(...(error && !error.stopped ? [h("div", { class: "notice is-error", role: "alert" }, error.message, error.hint && h("span", { class: "dim" }, `→ ${error.hint}`))] : []));
};

/** Call a function at each change of some traits, one listener each: only JupyterLab knows several names in one text. */
const onChange = (model, names, run, signal) => {
  for (const name of names) {
    model.on(`change:${name}`, run);
    signal?.addEventListener("abort", () => model.off(`change:${name}`, run));
  }
};

const number = (value) => Number(value).toLocaleString("en");
// 100M
const few = (value) => Number(value).toLocaleString("en", { notation: "compact" });
/** Return a function that runs the last call of many, once `ms` have passed without another. */
const later = (ms, run) => { let timer; return (...given) => { clearTimeout(timer); timer = setTimeout(() => run(...given), ms); }; };
/** Tell whether cells may hold magics: those of marimo are Python alone. */
const hasMagics = () => !customElements.get("marimo-anywidget");
/** Insert a cell with a text below the active one, by JupyterLab's own commands; other front ends show the text.
 * `plain` says the same in Python, where a text has magics and cells may not; marimo imports a module in one cell alone. */
const insertCell = (root, text, plain = text) => {
  if (!document.querySelector(".jp-Notebook")) {
    root.querySelector(":scope > .paste")?.remove();
    const paste = h("div", { class: "notice paste", role: "status" }, "Paste this into a cell:",
      h("pre", { class: "mono", tabindex: "0", "aria-label": "Cell" }, hasMagics() ? text : plain.replace(/^import nbtools\n+/, "")), h("button", { type: "button", onclick: () => paste.remove() }, "Close"));
    return root.append(paste);
  }
  const place = root.closest(".jp-Cell")?.querySelector(".jp-InputArea-editor, .jp-Cell-inputWrapper");
  // the cell of the widget becomes the active one
  place?.dispatchEvent(new MouseEvent("mousedown", { bubbles: true }));
  for (const [command, given] of [["notebook:insert-cell-below", {}], ["notebook:replace-selection", { text }]]) {
    const link = h("button", { hidden: "", "data-commandlinker-command": command, "data-commandlinker-args": JSON.stringify(given) });
    root.append(link);
    link.click();
    link.remove();
  }
};
