import assert from "node:assert/strict";
import { test } from "node:test";
import { Link, Texts } from "../../../nbtools/widgets/static/link.js";

/** Where notices would stand. @type {any} */
const root = { querySelector: () => null, toggleAttribute: () => false, prepend: () => {} };
globalThis.document ??= /** @type {any} */ ({ createElement: () => ({ setAttribute: () => {}, append: () => {} }) });

/** Return a model that keeps what it is sent, and fires what comes back. */
const createModel = () => {
  /** @type {((message: object | null) => void)[]} */
  const hearers = [];
  /** @type {any[]} */
  const sent = [];
  return {
    sent,
    get: () => undefined,
    set: () => {},
    save_changes: () => {},
    on: (/** @type {string} */ _name, /** @type {(message: object | null) => void} */ run) => void hearers.push(run),
    off: () => void hearers.pop(),
    send: (/** @type {object} */ message) => void sent.push(message),
    fire: (/** @type {object | null} */ message) => hearers.forEach((run) => run(message)),
  };
};

test("each reply goes to its own question, an error with its hint", async () => {
  const model = createModel();
  const link = new Link(model, root, undefined);
  const replies = [link.ask("a", { x: 1 }), link.ask("b")];
  const [one, two] = model.sent;
  assert.deepEqual([one.t, one.name, one.given, two.name], ["ask", "a", { x: 1 }, "b"]);
  model.fire({ t: "reply", id: two.id, error: { message: "no", hint: "try c", stopped: false } });
  model.fire({ t: "reply", id: one.id, value: 7 });
  model.fire({ t: "reply", id: "unknown", value: 8 });
  model.fire(null);
  assert.equal(await replies[0], 7);
  await assert.rejects(replies[1], { message: "no", hint: "try c" });
});

test("a question tells how far it is; when it is stopped, it says so to both sides, once", async () => {
  const model = createModel();
  const link = new Link(model, root, undefined);
  const stop = new AbortController();
  /** @type {number[]} */
  const shares = [];
  const reply = link.ask("long", {}, { signal: stop.signal, progress: (share) => shares.push(share) });
  const { id } = model.sent[0];
  model.fire({ t: "progress", id, share: 0.5 });
  stop.abort();
  model.fire({ t: "reply", id, value: "late" });
  await assert.rejects(reply, { message: "stopped", stopped: true });
  assert.deepEqual(shares, [0.5]);
  assert.deepEqual(model.sent.slice(1), [{ t: "stop", id }]);
});

test("a view says ready until it is heard, and stops what runs when it ends", async () => {
  const model = createModel();
  const end = new AbortController();
  const link = new Link(model, root, end.signal);
  const kinds = () => model.sent.map((each) => each.t);
  link.ready(5);
  while (kinds().length < 3) await new Promise((resolve) => setTimeout(resolve, 1));
  model.fire({ t: "seen" });
  const count = model.sent.length;
  link.ask("long");
  end.abort();
  await new Promise((resolve) => setTimeout(resolve, 60));
  assert.deepEqual(kinds().slice(count), ["ask", "stop"]);
});

test("a kernel that is gone answers at once", async () => {
  const broken = {
    ...createModel(),
    send: () => {
      throw new Error("no kernel");
    },
  };
  await assert.rejects(new Link(broken, root, undefined).ask("a"), { message: "the kernel is gone", stopped: true });
});

test("a text that nobody named goes to those who hear all, and a piece that was lost is asked for", () => {
  const model = createModel();
  const link = new Link(model, root, undefined);
  /** @type {string[][]} */
  const history = [];
  link.text("*", (text, name) => history.push([name, text]));
  model.fire({ t: "text", name: "x", offset: 0, text: "a" });
  model.fire({ t: "text", name: "y", offset: 0, text: "b" });
  model.fire({ t: "text", name: "x", offset: 1, text: "c" });
  model.fire({ t: "text", name: "x", offset: 9, text: "z" });
  assert.deepEqual(history, [
    ["x", "a"],
    ["y", "b"],
    ["x", "ac"],
  ]);
  assert.deepEqual(model.sent, [{ t: "ready" }]);
});

test("pieces of a text go where they belong, and a gap is noticed", () => {
  /** @type {string[]} */
  const history = [];
  const texts = new Texts();
  texts.watch("a", (text) => history.push(text));
  assert.equal(texts.add("a", 0, "one 😀"), true);
  assert.equal(texts.add("a", 6, " two"), true);
  assert.equal(texts.add("a", 6, " two"), true);
  assert.equal(texts.add("a", 99, "far"), false);
  assert.equal(texts.add("a", 0, "new"), true);
  assert.deepEqual(history, ["one 😀", "one 😀 two", "new"]);
});
