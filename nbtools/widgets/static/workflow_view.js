// A run of a workflow: its graph, the times of its steps, its questions.
const TONES = { ok: "is-ok", reused: "is-ok", failed: "is-bad", running: "is-run", waiting: "is-warn", unknown: "is-warn", declined: "is-warn" };
const GOES_ON = ["failed", "cancelled", "declined"];

export default { render({ model, el, signal }) {
  const root = mount(el, model, `Run of ${model.get("title")}`, signal), link = connect(model, signal);
  const pill = h("span", { class: "pill" }), head = h("span", { class: "dim" }), failed = h("div", {});
  const stop = h("button", { type: "button", class: "danger", onclick: async () => {
    stop.disabled = true;
    try { await link.ask("stop"); } catch (error) { stop.disabled = false; showError(failed, error); }
  } }, "Stop");
  // A run that nobody drives goes on from a cell.
  const resume = h("button", { type: "button", onclick: () => insertCell(root, `%load_ext nbtools\n%workflow resume ${model.get("run_id")}`, `nbtools.workbench().workflows.resume("${model.get("run_id")}")`) }, "Insert the cell that goes on");
  const asks = h("div", { class: "asks", "aria-live": "polite" });
  const graph = h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Graph of the run" });
  const bars = h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "When each step ran" });
  const body = h("tbody"), steps = h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Steps of the run" },
    h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ...model.get("columns").map((name) => h("th", { scope: "col" }, name)))), body));
  const whole = h("details", { open: "" }, h("summary", {}, "Graph"), graph);
  const times = h("details", {}, h("summary", {}, "Times"), bars), table = h("details", { open: "" }, h("summary", {}, "Steps"), steps);
  const outputs = h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "What the run returned" });
  root.append(h("div", { class: "bar" }, pill, h("span", { class: "title" }, model.get("title")), head, h("span", { class: "grow" }), resume, stop), failed, asks, outputs, whole, table, times);

  const paint = () => {
    const state = model.get("state");
    pill.className = `pill ${TONES[state] ?? ""}`;
    pill.textContent = state;
    head.textContent = model.get("head");
    stop.hidden = !model.get("is_driven");
    resume.hidden = model.get("is_driven") || !(model.get("is_followed") || GOES_ON.includes(state)) || model.get("questions").some((one) => !one.told);
    graph.innerHTML = model.get("graph"); // made by the kernel's side, which escapes every text in it
    bars.innerHTML = model.get("bars");
    outputs.innerHTML = model.get("outcome");
    outputs.hidden = !model.get("outcome");
    body.replaceChildren(...model.get("rows").map((row) => h("tr", { "data-state": row[1] }, ...row.map((cell, i) => h(i ? "td" : "th", i ? {} : { scope: "row" }, cell)))));
  };
  const fold = () => { if (model.get("is_short")) whole.open = table.open = false; };
  const cards = new Map();
  const keyOf = (one) => JSON.stringify([one.step, one.told]); // an answered question stands in a card of its own
  const question = (one) => {
    if (one.told) return h("div", { class: "question" }, h("div", {}, h("code", { class: "mono" }, one.step), " asks: ", h("strong", {}, one.text)), h("div", { class: "dim" }, one.told));
    const wrong = h("div", { class: "wrong", role: "alert" }), form = one.fields.length ? fieldsForm(one.fields) : null;
    const say = async (answer) => {
      for (const each of buttons) each.disabled = true;
      try {
        const { problems } = await link.ask("answer", { step: one.step, answer });
        if (form) form.showProblems(problems, true); else wrong.textContent = Object.values(problems).join("; ");
        for (const each of buttons) each.disabled = false;
      } catch (error) { showError(wrong, error); for (const each of buttons) each.disabled = false; }
    };
    const buttons = form ? [h("button", { type: "button", class: "primary", onclick: () => say(form.typed()) }, "Send")]
      : one.answers.map(([answer, label], i) => h("button", { type: "button", class: i ? "" : "primary", onclick: () => say(answer) }, label));
    return h("div", { class: "question", role: "group", "aria-label": `${one.step} asks` },
      h("div", {}, h("code", { class: "mono" }, one.step), " asks: ", h("strong", {}, one.text)), form && form.element, wrong, h("div", { class: "answers" }, ...buttons));
  };
  const ask = () => {
    const now = model.get("questions"), keys = new Set(now.map(keyOf));
    for (const [key, card] of cards) if (!keys.has(key)) { card.remove(); cards.delete(key); }
    for (const one of now) if (!cards.has(keyOf(one))) { const card = question(one); cards.set(keyOf(one), card); asks.append(card); }
  };
  const clock = setInterval(() => { if (model.get("is_followed") && !document.hidden) link.ask("look").catch((error) => showError(failed, error)); }, 2000);
  signal?.addEventListener("abort", () => clearInterval(clock));
  let frame = 0;
  const soon = () => { frame ||= requestAnimationFrame(() => { frame = 0; paint(); }); };
  onChange(model, ["is_followed", "questions", "state", "head", "graph", "bars", "outcome", "rows", "is_driven"], soon, signal);
  onChange(model, ["questions"], ask, signal); onChange(model, ["is_short"], fold, signal);
  paint(); fold(); ask();
  link.ready();
} };
