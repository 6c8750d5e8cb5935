// The sessions: state, age, CPU, memory, and what can be done with them.
const TONES = { idle: "is-ok", busy: "is-run", dead: "is-bad" };
const duration = (s) => (s == null ? "" : s < 60 ? `${s.toFixed(0)} s` : s < 3600 ? `${Math.floor(s / 60)} min ${String(Math.floor(s % 60)).padStart(2, "0")} s` : `${(s / 3600).toFixed(1)} h`);

export default { render({ model, el, signal }) {
  const root = mount(el, model, "Kernels", signal), link = connect(model, signal), failed = h("div", {});
  const name = h("input", { type: "text", placeholder: "name of a session", "aria-label": "Name of a new session" });
  const change = async (verb, of, button) => {
    if (button) button.disabled = true;
    try { await link.ask("change", { verb, session: of }); showError(failed, null); } catch (error) { showError(failed, error); }
    if (button) button.disabled = false;
    await look();
  };
  const start = () => { if (name.value.trim()) change("start", name.value.trim()).then(() => { name.value = ""; }); };
  name.addEventListener("keydown", (event) => { if (event.key === "Enter") start(); });
  const body = h("tbody"), empty = h("div", { class: "inside dim" }, "No sessions yet. A script runs in a new kernel each time; with --session NAME in one that keeps its variables.");
  const heads = ["name", "state", "age", "CPU", "memory", "last call", "actions"];
  const table = h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Sessions" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ...heads.map((each) => h("th", { scope: "col" }, each)))), body));
  root.append(h("div", { class: "bar" }, h("span", { class: "title" }, "Kernels"), h("span", { class: "grow" }), name, h("button", { type: "button", onclick: start }, "Start")), failed, table, empty);
  const rows = new Map();
  const made = (of) => {
    const button = (verb, label, kind) => {
      const each = h("button", { type: "button", class: kind, "aria-label": `${label} ${of}`, onclick: () => change(verb, of, each) }, label);
      return each;
    };
    // What loses variables asks once more, in its own place.
    const sure = (verb, label) => {
      const each = h("button", { type: "button", class: "danger", "aria-label": `${label} ${of}`, onclick: () => {
        if (each.dataset.sure) { delete each.dataset.sure; each.textContent = label; return change(verb, of, each); }
        each.dataset.sure = "yes"; each.textContent = "Loses its variables: sure?";
        setTimeout(() => { delete each.dataset.sure; each.textContent = label; }, 4000);
      } }, label);
      return each;
    };
    const cells = { state: h("td"), age: h("td"), cpu: h("td"), memory: h("td"), last: h("td") };
    const row = h("tr", {}, h("th", { scope: "row" }, h("strong", {}, of)), cells.state, cells.age, cells.cpu, cells.memory, cells.last,
      h("td", {}, h("span", { class: "answers" }, button("interrupt", "Stop"), sure("restart", "Restart"), sure("stop", "Kill"))));
    body.append(row);
    return { row, cells, before: null };
  };
  const paint = (kernels) => {
    const now = performance.now() / 1000, seen = new Set(kernels.map((each) => each.name));
    empty.hidden = !(table.hidden = !kernels.length);
    for (const [of, { row }] of rows) if (!seen.has(of)) { row.remove(); rows.delete(of); }
    for (const each of kernels) {
      if (!rows.has(each.name)) rows.set(each.name, made(each.name));
      const found = rows.get(each.name), { cells } = found, before = found.before;
      const share = before && each.cpu_s != null && now > before.at ? Math.max(0, 100 * (each.cpu_s - before.cpu) / (now - before.at)) : null;
      if (!before || now - before.at > 0.5) found.before = { at: now, cpu: each.cpu_s };
      cells.state.replaceChildren(h("span", { class: `pill ${TONES[each.state] ?? ""}` }, each.state ?? ""), h("span", { class: "dim" }, each.pid ? ` ${each.language}, pid ${each.pid}` : ""));
      cells.age.textContent = duration(each.age_s);
      cells.cpu.textContent = each.cpu_s == null ? "" : share == null ? `${each.cpu_s.toFixed(1)} s` : `${share.toFixed(0)} %, ${each.cpu_s.toFixed(1)} s`;
      cells.memory.textContent = each.memory_bytes == null ? "" : `${(each.memory_bytes / 2 ** 20).toFixed(0)} MiB`;
      cells.last.textContent = each.last_call ?? "";
    }
  };
  let asks = false;
  const look = async () => {
    if (asks || document.hidden || signal?.aborted) return;
    asks = true;
    try { paint(await link.ask("list")); } catch (error) { showError(failed, error); }
    asks = false;
  };
  const clock = setInterval(look, 1000);
  signal?.addEventListener("abort", () => clearInterval(clock));
  paint(model.get("rows"));
  link.ready();
  look();
} };
