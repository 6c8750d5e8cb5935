import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const folder = process.env.JOINED ?? "";

test("each widget, as it is sent, is a module that renders", { skip: folder ? false : "set JOINED" }, async () => {
  const files = readdirSync(folder);
  assert.ok(files.length > 5);
  for (const file of files) {
    const widget = await import(pathToFileURL(join(folder, file)).href);
    assert.equal(typeof widget.default.render, "function", file);
  }
});
