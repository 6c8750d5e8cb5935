// A script over the rows that are shown.
import { h, runByKey, showError, stopButton } from "../shared.js";

/** @import { Link } from "../link.js" */
/** @import { Picture } from "../shared.js" */

/** @param {Link} link */
export const scriptPanel = (link) => {
  const code = h("textarea", { rows: "5", spellcheck: "false", "aria-label": "Script", class: "mono script" });
  const label = "Output of the script";
  const output = h("pre", { class: "mono", tabindex: "0", "aria-label": label, hidden: true });
  const pictures = h("div", { class: "pins" });
  const failure = h("div", {});
  const status = h("span", { class: "dim", role: "status" });
  code.value = "print(df.describe())";
  /** @type {AbortController | null} */
  let running = null;
  let textName = "";
  const begin = () => {
    run.disabled = true;
    stop.hidden = false;
    output.textContent = "";
    output.hidden = true;
    pictures.replaceChildren();
    showError(failure, null);
    status.textContent = "running";
  };
  const go = async () => {
    if (running) return;
    running = new AbortController();
    begin();
    try {
      const result = await link.ask("script", { code: code.value }, { signal: running.signal });
      status.textContent = `${result.ok ? "done" : result.code} in ${result.seconds.toFixed(2)} s`;
      if (!result.ok) showError(failure, { message: result.text });
      const images = result.pictures.map((/** @type {Picture} */ each) => h("img", { src: each.uri, alt: each.name }));
      pictures.replaceChildren(...images);
    } catch (error) {
      status.textContent = error.stopped ? "stopped" : "";
      showError(failure, error);
    }
    running = null;
    run.disabled = false;
    stop.hidden = true;
  };
  const run = h("button", { class: "primary run-script", onclick: go }, "Run the script");
  const stop = stopButton(() => running);
  runByKey(code, go);
  link.hear("begins", ({ text }) => {
    textName = text;
  });
  link.text("*", (text, of) => {
    if (of !== textName) return;
    output.hidden = false;
    output.textContent = text;
  });
  const hint = h("div", { class: "dim hint" }, "Python in a clean kernel; df holds the rows that are shown.");
  const bar = h("div", { class: "bar query" }, code, h("div", { class: "acts" }, run, stop, status));
  return { elements: [hint, bar, failure, output, pictures], open: () => code.focus() };
};
