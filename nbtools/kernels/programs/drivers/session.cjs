// A Node.js session: each line of JSON on descriptor 8 is a script to run, each answer is a line on descriptor 9.
//
// Scripts are evaluated as the inspector's console does it: top-level await works, and const, let and class may be
// declared again. A run is over when nothing is left to wait for, as at the end of a program. SIGINT ends a loop by an
// exception; while a script only waits, it drops its timers.
"use strict";
const fs = require("fs");
const inspector = require("inspector");
const { createRequire } = require("module");
const net = require("net");
const path = require("path");
const vm = require("vm");

/** @typedef {{ error: ReturnType<typeof describe> | null, interrupted: boolean }} Run */

const ANSWERS = 9;
/** What scripts see as globals. @type {any} */
const scope = globalThis;
const console_ = new inspector.Session();
console_.connect();
const input = new net.Socket({ fd: 8, readable: true, writable: false });
/** @type {Set<{ clear: () => void }>} */
const timers = new Set();
/** The run that goes on: what made it fail, and whether it was interrupted. @type {Run | null} */
let running = null;

/**
 * Keep what a script has set going, so that an interrupt can end it.
 * @param {"setTimeout" | "setInterval" | "setImmediate"} set
 * @param {"clearTimeout" | "clearInterval" | "clearImmediate"} clear
 */
function keepTimers(set, clear) {
  const original = scope[set];
  const forget = scope[clear];
  scope[set] = Object.assign((/** @type {any} */ callback, /** @type {any[]} */ ...rest) => {
    if (typeof callback !== "function") return original(callback, ...rest);
    const entry = { clear: () => forget(timer) };
    const timer = original(
      (/** @type {any[]} */ ...values) => {
        if (set !== "setInterval") timers.delete(entry);
        return callback(...values);
      },
      ...rest,
    );
    timers.add(entry);
    return timer;
  }, original);
}

/** @param {object} facts */
function answer(facts) {
  fs.writeSync(ANSWERS, `${JSON.stringify(facts)}\n`);
}

/** @param {any} error */
function describe(error) {
  const isError = error !== null && typeof error === "object" && "message" in error;
  const stack = isError ? ownPart(String(error.stack || error.message)) : "";
  const frame = stack.match(/script\.js:(\d+)/);
  return {
    name: isError ? String(error.name) : "Uncaught",
    value: isError ? String(error.message) : String(error),
    traceback: stack,
    line: frame ? Number(frame[1]) : null,
  };
}

/**
 * Return a stack without the frames below the script, which are those of this file.
 * @param {string} stack
 */
function ownPart(stack) {
  const lines = stack.split("\n");
  const end = lines.findIndex((line) => line.includes("node:inspector") || line.includes(__filename));
  return (end < 0 ? lines : lines.slice(0, end)).join("\n");
}

/** @param {any} error */
function fail(error) {
  if (!running) return;
  if (running.error === null) {
    running.error = describe(error);
    process.stderr.write(`Uncaught ${running.error.traceback || running.error.value}\n`);
  }
}

/**
 * Fetch the value that was thrown: the inspector hands out references to it.
 * @param {inspector.Runtime.ExceptionDetails} details
 */
function thrown(details) {
  const { objectId, value = details.text } = details.exception ?? {};
  if (objectId === undefined) return value;
  let object = value;
  scope.__nbtools_take = (/** @type {unknown} */ target) => (object = target);
  console_.post("Runtime.callFunctionOn", {
    objectId,
    functionDeclaration: "function () { globalThis.__nbtools_take(this); }",
  });
  delete scope.__nbtools_take;
  return object;
}

/** @param {string} code */
function evaluate(code) {
  const parameters = { expression: `${code}\n//# sourceURL=script.js`, replMode: true, awaitPromise: true };
  scope.__nbtools_go = () => {
    delete scope.__nbtools_go;
    console_.post("Runtime.evaluate", parameters, (error, /** @type {any} */ result) => {
      if (error) fail(new Error(error.message));
      else if (result.exceptionDetails) fail(thrown(result.exceptionDetails));
    });
  };
  try {
    vm.runInThisContext("__nbtools_go()", { breakOnSigint: true });
  } catch (error) {
    if (error && error.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") interrupt();
    else fail(error);
  }
}

function interrupt() {
  if (!running) return;
  running.interrupted = true;
  for (const timer of timers) timer.clear();
  timers.clear();
}

/** @param {string | null} folder */
function enter(folder) {
  if (!folder) return;
  process.chdir(folder);
  const main = path.join(folder, "script.js");
  Object.assign(scope, { require: createRequire(main), __filename: main, __dirname: folder });
}

/** @param {{ file: string, world: string }} request the code, and its folder and variables */
function begin(request) {
  running = { error: null, interrupted: false };
  input.unref();
  try {
    const world = JSON.parse(fs.readFileSync(request.world, "utf8"));
    enter(world.cwd);
    Object.assign(scope, world.variables);
    evaluate(fs.readFileSync(request.file, "utf8"));
  } catch (error) {
    fail(error);
  }
}

keepTimers("setTimeout", "clearTimeout");
keepTimers("setInterval", "clearInterval");
keepTimers("setImmediate", "clearImmediate");
process.on("uncaughtException", fail);
process.on("SIGINT", interrupt);
process.on("exit", () => (running = null));
// Nothing is left to wait for but the next request.
process.on("beforeExit", () => {
  if (running) {
    const { error, interrupted } = running;
    running = null;
    answer({ done: true, exit_code: interrupted ? 130 : error ? 1 : 0, error });
  }
  input.ref();
});

// What a loop prints would be kept in memory until the loop ends. And a stream that a stop meets in the middle of a
// write would wait for its end for ever, and keep all that comes later: these have no state that could be left.
for (const stream of /** @type {any[]} */ ([process.stdout, process.stderr])) {
  stream._handle?.setBlocking?.(true);
  stream.write = (/** @type {any} */ data, /** @type {any} */ encoding, /** @type {any} */ callback) => {
    const bytes = Buffer.from(data, typeof encoding === "function" ? undefined : encoding);
    for (let at = 0; at < bytes.length;) at += fs.writeSync(stream.fd, bytes, at);
    const written = typeof encoding === "function" ? encoding : callback;
    if (written) process.nextTick(written);
    return true;
  };
}

let waiting = "";
input.setEncoding("utf8");
input.on("data", (text) => {
  waiting += text;
  let end;
  while ((end = waiting.indexOf("\n")) >= 0) {
    const line = waiting.slice(0, end);
    waiting = waiting.slice(end + 1);
    begin(JSON.parse(line));
  }
});
input.on("end", () => process.exit(0));

const main = { exports: {} };
Object.assign(scope, { module: main, exports: main.exports });
enter(process.cwd());
answer({ ready: true });
