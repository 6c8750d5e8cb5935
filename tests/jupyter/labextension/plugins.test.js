import assert from "node:assert";
import { test } from "node:test";
import plugins from "../../../nbtools/jupyter/labextension/static/plugins.js";

test("a page that is not Lab, and offers none of its services, takes all plugins without an error", async () => {
  const all = await plugins(async () => ({}));
  assert.strictEqual(all.length, 2);
  for (const plugin of all) {
    assert.strictEqual("requires" in plugin, false);
    await plugin.activate({}, null, null);
  }
});
