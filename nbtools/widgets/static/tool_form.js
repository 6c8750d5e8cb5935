// A tool: its arguments, messages at the field, the result below.
export default { render({ model, el, signal }) {
  const name = model.get("title"), root = mount(el, model, `Tool ${name}`, signal), link = connect(model, signal);
  const failed = h("div", {}), result = h("div", { "aria-live": "polite" }), output = h("pre", { class: "mono", tabindex: "0", "aria-label": "Output", hidden: "" });
  const check = later(300, async () => {
    try { form.showProblems((await link.ask("check", { typed: form.typed() })).problems); } catch (error) { showError(failed, error); }
  });
  const form = fieldsForm(model.get("fields"), { draft: model.get("draft"), edit: (edited) => { model.set("draft", { ...edited }); model.save_changes(); check(); } });
  let running = null, shown = "";
  const go = async () => {
    if (running) return;
    running = new AbortController();
    run.disabled = true; stop.hidden = false; output.hidden = true; output.textContent = ""; result.replaceChildren(); showError(failed, null);
    try {
      const told = await link.ask("run", { typed: form.typed() }, { signal: running.signal });
      form.showProblems(told.problems, true);
      if (told.result) paint(told.result);
    } catch (error) { if (error.stopped) result.replaceChildren(h("div", { class: "notice" }, "You stopped it.")); else showError(failed, error); }
    running = null; run.disabled = false; stop.hidden = true;
  };
  const paint = (told) => {
    if (told.text === undefined) return;
    const head = h("div", { class: "dim" }, h("span", { class: `pill ${told.ok ? "is-ok" : "is-bad"}` }, told.ok ? "done" : told.code), ` ${name} · ${told.seconds.toFixed(2)} s`);
    output.hidden = true;
    result.replaceChildren(head, told.text && h("pre", { class: "mono", tabindex: "0", "aria-label": "Result" }, told.text), ...told.pictures.map((each) => h("img", { src: each.uri, alt: each.name })));
  };
  const run = h("button", { type: "button", class: "primary", onclick: go }, "Run");
  const stop = h("button", { type: "button", class: "danger", hidden: "", onclick: () => running?.abort() }, "Stop");
  const cell = h("button", { type: "button", onclick: async () => {
    try { insertCell(root, await link.ask("cell", { typed: form.typed() })); } catch (error) { showError(failed, error); }
  } }, "Insert as cell");
  form.element.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.target.tagName === "INPUT")) { event.preventDefault(); event.stopPropagation(); go(); } });
  link.hear("begins", ({ text }) => { shown = text; });
  link.text("*", (text, of) => { if (of !== shown) return; output.hidden = false; output.textContent = text; });
  root.append(h("div", { class: "bar" }, h("code", { class: "mono title" }, name), h("span", { class: "dim" }, model.get("about"))),
    h("div", { class: "inside" }, form.element), h("div", { class: "bar" }, run, stop, cell), h("div", { class: "inside" }, failed, output, result));
  paint(model.get("result"));
  link.ready();
} };
