// Run one Node.js script as `node script.js` would, with the process started ahead of time.
//
// One line of JSON arrives on descriptor 8: the file with the code, and the file with its world (working folder, global
// variables). What made the script fail goes to descriptor 9 as JSON; standard output, error and the exit code are
// Node's own. The name ends in .cjs, since a package.json in any folder above may say that .js files are ES modules.
"use strict";
const fs = require("fs");
const { createRequire } = require("module");
const path = require("path");
const { pathToFileURL } = require("url");
const vm = require("vm");

const REQUESTS = 8;
const ANSWERS = 9;
const NAME = "script.js";

function readLine() {
  const parts = [];
  const buffer = Buffer.alloc(65536);
  for (;;) {
    const size = fs.readSync(REQUESTS, buffer, 0, buffer.length, null);
    if (size === 0) process.exit(0);
    parts.push(Buffer.from(buffer.subarray(0, size)));
    if (buffer.subarray(0, size).includes(10)) return Buffer.concat(parts).toString("utf8");
  }
}

/** @param {any} error */
function report(error) {
  const isError = error !== null && typeof error === "object" && "message" in error;
  const stack = isError ? ownPart(String(error.stack)) : "";
  const frame = stack.match(/script\.m?js:(\d+)/);
  const facts = {
    name: isError ? String(error.name) : "Uncaught",
    value: isError ? String(error.message) : String(error),
    traceback: stack,
    line: frame ? Number(frame[1]) : null,
  };
  try {
    fs.writeSync(ANSWERS, `${JSON.stringify({ error: facts })}\n`);
  } catch {
    // The owner is gone; Node prints the error all the same.
  }
}

/**
 * Return a stack without the frames below the script, which are those of this file.
 * @param {string} stack
 */
function ownPart(stack) {
  const lines = stack.split("\n");
  const end = lines.findIndex((line) => line.includes("node:vm") || line.includes(__filename));
  return (end < 0 ? lines : lines.slice(0, end)).join("\n");
}

/**
 * Run a module; its file has to lie where its relative imports are looked for.
 * @param {string} code
 * @param {string} folder
 */
function importAsModule(code, folder) {
  let file = path.join(folder, `.nbtools-${process.pid}-script.mjs`);
  try {
    fs.writeFileSync(file, code);
  } catch {
    file = path.join(path.dirname(request.file), "script.mjs");
    fs.writeFileSync(file, code);
  }
  const remove = () => fs.rmSync(file, { force: true });
  process.on("exit", remove);
  return import(pathToFileURL(file).href).finally(remove);
}

// Otherwise what a loop prints is kept in memory until the loop ends.
for (const stream of /** @type {any[]} */ ([process.stdout, process.stderr])) stream._handle?.setBlocking?.(true);

const request = JSON.parse(readLine());
const world = JSON.parse(fs.readFileSync(request.world, "utf8"));
fs.closeSync(REQUESTS);
process.on("uncaughtExceptionMonitor", report);
// import() in a script uses what Node calls experimental; that is no news for whoever wrote the script.
const { emitWarning } = process;
process.emitWarning = (/** @type {any[]} */ ...details) => {
  if (!String(details[0]).includes("USE_MAIN_CONTEXT_DEFAULT_LOADER")) Reflect.apply(emitWarning, process, details);
};
if (world.cwd) process.chdir(world.cwd);
const folder = process.cwd();
const main = path.join(folder, NAME);
process.argv = [process.argv[0], main];
const scope = { exports: {}, filename: main, paths: [] };
const names = {
  require: createRequire(main),
  module: scope,
  exports: scope.exports,
  __filename: main,
  __dirname: folder,
};
Object.assign(globalThis, names, world.variables);

const code = fs.readFileSync(request.file, "utf8");
let script = null;
try {
  /** @type {import("vm").ScriptOptions} */
  const options = { filename: main };
  if (vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER) {
    options.importModuleDynamically = vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
  }
  script = new vm.Script(code, options);
} catch (error) {
  // Static imports and a top-level await are for modules only, so a script that has them is one.
  if (!/\b(import|export|await)\b/.test(code)) throw error;
}
if (script) script.runInThisContext();
else importAsModule(code, folder);
