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

const ANSWERS = 9;
const console_ = new inspector.Session();
console_.connect();
const input = new net.Socket({ fd: 8, readable: true, writable: false });
const timers = new Set();
let running = null;

for (const [set, clear, repeats] of [
  ["setTimeout", "clearTimeout", false],
  ["setInterval", "clearInterval", true],
  ["setImmediate", "clearImmediate", false],
]) {
  const original = globalThis[set];
  const forget = globalThis[clear];
  globalThis[set] = Object.assign((callback, ...rest) => {
    if (typeof callback !== "function") return original(callback, ...rest);
    const entry = {};
    const made = original((...values) => {
      if (!repeats) timers.delete(entry);
      return callback(...values);
    }, ...rest);
    entry.clear = () => forget(made);
    timers.add(entry);
    return made;
  }, original);
}

function answer(facts) {
  fs.writeSync(ANSWERS, JSON.stringify(facts) + "\n");
}

function describe(error) {
  const isError = error !== null && typeof error === "object" && "message" in error;
  const stack = isError ? ownPart(String(error.stack || error.message)) : "";
  const place = stack.match(/script\.js:(\d+)/);
  return {
    name: isError ? String(error.name) : "Uncaught",
    value: isError ? String(error.message) : String(error),
    traceback: stack,
    line: place ? Number(place[1]) : null,
  };
}

// The frames below the script are those of this file.
function ownPart(stack) {
  const lines = stack.split("\n");
  const end = lines.findIndex((line) => line.includes("node:inspector") || line.includes(__filename));
  return (end < 0 ? lines : lines.slice(0, end)).join("\n");
}

function fail(error) {
  if (!running) return;
  if (running.error === null) {
    running.error = describe(error);
    process.stderr.write(`Uncaught ${running.error.traceback || running.error.value}\n`);
  }
}

// Fetch the value that was thrown: the inspector hands out references to it.
function thrown(details) {
  const given = details.exception || {};
  if (given.objectId === undefined) return given.value !== undefined ? given.value : details.text;
  let found = details.text;
  globalThis.__nbtools_take = (value) => (found = value);
  console_.post("Runtime.callFunctionOn", {
    objectId: given.objectId,
    functionDeclaration: "function () { globalThis.__nbtools_take(this); }",
  });
  delete globalThis.__nbtools_take;
  return found;
}

function evaluate(code) {
  const parameters = { expression: `${code}\n//# sourceURL=script.js`, replMode: true, awaitPromise: true };
  globalThis.__nbtools_go = () => {
    delete globalThis.__nbtools_go;
    console_.post("Runtime.evaluate", parameters, (error, result) => {
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

function enter(folder) {
  if (!folder) return;
  process.chdir(folder);
  const main = path.join(folder, "script.js");
  globalThis.require = createRequire(main);
  globalThis.__filename = main;
  globalThis.__dirname = folder;
}

function begin(request) {
  running = { error: null, interrupted: false };
  input.unref();
  try {
    const world = JSON.parse(fs.readFileSync(request.world, "utf8"));
    enter(world.cwd);
    Object.assign(globalThis, world.variables);
    evaluate(fs.readFileSync(request.file, "utf8"));
  } catch (error) {
    fail(error);
  }
}

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

// Otherwise what a loop prints is kept in memory until the loop ends.
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);

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

globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
enter(process.cwd());
answer({ ready: true });
