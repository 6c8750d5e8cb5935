// Messages between a view and the kernel's side; `nbtools.widgets.live.live_widget` says what goes over the wire.

import { showSilence } from "./shared.js";

/** @import { Model } from "./shared.js" */

/** @typedef {(text: string, name: string) => void} ShowText */
/** @typedef {(details: any) => void} Hearer */
/**
 * A request that has no reply yet.
 * @typedef {object} Request
 * @property {(value: any) => void} resolve
 * @property {(error: Error) => void} reject
 * @property {(share: number) => void} [progress]
 */

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;
// A page takes milliseconds; a kernel that says nothing for this long is busy with a cell, or gone.
const SILENT_MS = 10_000;

/** An error that the kernel's side replied with. */
export class ReplyError extends Error {
  /** @param {{ message: string, hint?: string, stopped?: boolean, by_kernel?: boolean, gone?: boolean }} reply */
  constructor({ message, hint = "", stopped = false, by_kernel = false, gone = false }) {
    super(message);
    this.hint = hint;
    this.stopped = stopped;
    /** Its interrupt stopped it, and not who looks at it. */
    this.byKernel = by_kernel;
    /** There is no kernel, which a notice says. */
    this.gone = gone;
  }
}

/** The texts that grow, by their names. A piece says where it belongs, so one that was lost is noticed. */
export class Texts {
  constructor() {
    /** @type {Map<string, { text: string, show?: ShowText }>} */
    this.byName = new Map();
  }

  /**
   * Call a function with the whole text and its name each time it grew; the name "*" stands for all others.
   * @param {string} name
   * @param {ShowText} show
   */
  watch(name, show) {
    this.byName.set(name, { text: "", show });
  }

  /**
   * Add a piece; return whether it fits behind what is there.
   * @param {string} name
   * @param {number} offset
   * @param {string} piece
   */
  add(name, offset, piece) {
    const entry = this.byName.get(name) ?? { text: "", show: this.byName.get("*")?.show };
    this.byName.set(name, entry);
    if (offset > entry.text.length) return false;
    const isOld = offset + piece.length <= entry.text.length && offset > 0;
    if (!isOld) {
      entry.text = entry.text.slice(0, offset) + piece;
      entry.show?.(entry.text, name);
    }
    return true;
  }
}

export class Link {
  /**
   * @param {Model} model
   * @param {HTMLElement} root of the view
   * @param {AbortSignal | undefined} signal aborts when the view is removed
   */
  constructor(model, root, signal) {
    this.model = model;
    this.root = root;
    this.signal = signal;
    /** When the kernel's side said something for the last time. */
    this.heardAt = 0;
    this.id = Math.random().toString(36).slice(2);
    this.count = 0;
    /** The kernel's side has heard of this view. */
    this.isSeen = false;
    /** @type {Map<string, Request>} */
    this.requests = new Map();
    /** @type {Map<string, Hearer>} */
    this.hearers = new Map();
    this.texts = new Texts();
    /** @param {{ [key: string]: any } | null} message */
    const receive = (message) => this.receive(message ?? {});
    model.on("msg:custom", receive);
    signal?.addEventListener("abort", () => {
      model.off("msg:custom", receive);
      for (const id of this.requests.keys()) this.send({ t: "stop", id });
      this.requests.clear();
    });
  }

  /** @param {object} message */
  send(message) {
    try {
      this.model.send(message);
      return true;
    } catch {
      this.showSilence("No kernel runs: this shows what was read before. Start one, and run the cell again.");
      return false;
    }
  }

  /** @param {string} text */
  showSilence(text) {
    // After a restart another notice says more.
    if (!text || !this.root.querySelector(":scope > .lost")) showSilence(this.root, text);
  }

  /**
   * Look later whether anything was heard since a request that takes milliseconds.
   * @param {string} id
   */
  expect(id) {
    const askedAt = performance.now();
    const look = () => {
      if (!this.requests.has(id) || this.heardAt > askedAt || this.signal?.aborted) return;
      this.showSilence("The kernel does not answer: it is busy, or gone. This shows what was read before.");
    };
    setTimeout(look, SILENT_MS);
  }

  /** @param {{ [key: string]: any }} message */
  receive({ t, id, name, value, error, share, given: details, offset, text }) {
    const request = this.requests.get(id);
    this.heardAt = performance.now();
    this.showSilence("");
    if (t === "reply") {
      this.requests.delete(id);
      if (error) request?.reject(new ReplyError(error));
      else request?.resolve(value);
    } else if (t === "progress") request?.progress?.(share);
    else if (t === "tell") this.hearers.get(name)?.(details);
    else if (t === "seen") this.isSeen = true;
    // Where a piece was lost, all texts come again.
    else if (t === "text" && !this.texts.add(name, offset, text)) this.send({ t: "ready" });
  }

  /**
   * Ask; the promise is rejected with a ReplyError.
   * @param {string} name
   * @param {object} details
   * @param {{ signal?: AbortSignal, progress?: Request["progress"], quick?: boolean }} options `signal` stops the work,
   *   `progress` gets the share that is done, `quick` says that a kernel replies within milliseconds
   * @returns {Promise<any>}
   */
  ask(name, details = {}, { signal, progress, quick } = {}) {
    return new Promise((resolve, reject) => {
      const id = `${this.id}:${this.count++}`;
      /**
       * @param {string} message
       * @param {boolean} gone
       */
      const stop = (message, gone = false) => {
        if (this.requests.delete(id)) reject(new ReplyError({ message, stopped: true, gone }));
      };
      this.requests.set(id, { resolve, reject, progress });
      signal?.addEventListener("abort", () => {
        if (this.requests.has(id)) this.send({ t: "stop", id });
        stop("stopped");
      });
      if (!this.send({ t: "ask", id, name, given: details })) stop("the kernel is gone", true);
      else if (quick) this.expect(id);
    });
  }

  /**
   * Call a function when the kernel's side tells something.
   * @param {string} name
   * @param {Hearer} run
   */
  hear(name, run) {
    this.hearers.set(name, run);
  }

  /**
   * Call a function each time a text grew; see `Texts.watch`.
   * @param {string} name
   * @param {ShowText} show
   */
  text(name, show) {
    this.texts.watch(name, show);
  }

  /**
   * Say that this view listens, once all that hears is registered. Until a subshell has started, messages wait for the
   * cell that runs: so it is sent again until it was heard.
   */
  ready(wait = FIRST_WAIT_MS) {
    if (this.isSeen || this.signal?.aborted) return;
    this.send({ t: "ready" });
    setTimeout(() => this.ready(Math.min(2 * wait, LONGEST_WAIT_MS)), wait);
  }
}
