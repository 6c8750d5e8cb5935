// The explorer: the grid, the SQL of what it shows, a summary of a column, charts, a script, and code to go on with.
const stopper = (what) => h("button", { class: "danger", hidden: true, onclick: () => what()?.abort() }, "Stop");
const runBy = (area, run) => area.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey)) { event.preventDefault(); event.stopPropagation(); run(); } });
const chartPanel = (model, link, grid, root) => {
  const kind = h("select", { "aria-label": "Kind of chart" }, ...["bar", "line", "hist", "box", "scatter"].map((each) => h("option", {}, each)));
  const x = h("select", { "aria-label": "x" }), y = h("select", { "aria-label": "y" }), shown = h("figure", { hidden: true }), failed = h("div", {});
  const pin = h("button", { class: "pin", disabled: true, onclick: () => link.ask("pin").then(() => grid.say("Pinned below.")) }, "Pin");
  let drawing = null;
  const draw = async () => {
    drawing?.abort();
    const mine = (drawing = new AbortController());
    showError(failed, null); stop.hidden = false;
    try {
      const { uri, caption } = await link.ask("chart", { kind: kind.value, x: x.value, y: kind.value === "hist" ? "" : y.value, dark: root.dataset.theme === "dark" }, { signal: mine.signal });
      shown.replaceChildren(h("img", { src: uri, alt: caption }), h("figcaption", { class: "dim" }, caption));
      shown.hidden = false; pin.disabled = false;
    } catch (problem) { showError(failed, problem); if (!problem.stopped) { shown.hidden = true; pin.disabled = true; } } finally { if (drawing === mine) { drawing = null; stop.hidden = true; } }
  };
  const stop = stopper(() => drawing);
  const offer = () => {
    const names = model.get("state").columns.map((each) => each.name);
    for (const [place, first] of [[x, "x: the first that fits"], [y, "y: the first that fits"]]) {
      const before = place.value;
      place.replaceChildren(h("option", { value: "" }, first), ...names.map((name) => h("option", { value: name }, name)));
      place.value = names.includes(before) ? before : "";
    }
  };
  for (const each of [kind, x, y]) each.addEventListener("change", () => { y.disabled = kind.value === "hist"; draw(); });
  const panel = h("div", { class: "panel", hidden: true, role: "region", "aria-label": "Chart" }, h("div", { class: "bar" }, kind, x, y, h("button", { class: "draw", onclick: () => draw() }, "Draw"), pin, stop), failed, shown);
  const again = later(50, () => { if (!panel.hidden) { offer(); if (!shown.hidden) draw(); } });
  model.on("change:sql", again);
  return { panel, open: () => { offer(); kind.focus(); }, end: () => model.off("change:sql", again) };
};
const scriptPanel = (link, grid) => {
  const code = h("textarea", { rows: "5", spellcheck: "false", "aria-label": "Script", class: "mono script" }), output = h("pre", { class: "mono", tabindex: "0", "aria-label": "Output of the script", hidden: true }), pictures = h("div", { class: "pins" }), failed = h("div", {}), told = h("span", { class: "dim", role: "status" });
  code.value = "print(df.describe())";
  let running = null, listened = "";
  const go = async () => {
    if (running) return;
    running = new AbortController();
    run.disabled = true; stop.hidden = false; output.textContent = ""; output.hidden = true; pictures.replaceChildren(); showError(failed, null); told.textContent = "running";
    try {
      const result = await link.ask("script", { code: code.value }, { signal: running.signal });
      told.textContent = `${result.ok ? "done" : result.code} in ${result.seconds.toFixed(2)} s`;
      if (!result.ok) showError(failed, { message: result.text });
      pictures.replaceChildren(...result.pictures.map((each) => h("img", { src: each.uri, alt: each.name })));
    } catch (problem) { told.textContent = problem.stopped ? "stopped" : ""; showError(failed, problem); }
    running = null; run.disabled = false; stop.hidden = true;
  };
  const run = h("button", { class: "primary run-script", onclick: go }, "Run the script"), stop = stopper(() => running);
  runBy(code, go);
  link.hear("begins", ({ text }) => { listened = text; });
  link.text("*", (text, of) => { if (of !== listened) return; output.hidden = false; output.textContent = text; });
  const panel = h("div", { class: "panel", hidden: true, role: "region", "aria-label": "Script" }, h("div", { class: "dim hint" }, "Python in a clean kernel; df holds the rows that are shown."), h("div", { class: "bar query" }, code, h("div", { class: "acts" }, run, stop, told)), failed, output, pictures);
  return { panel, open: () => code.focus() };
};
export default {
  render({ model, el, signal }) {
    const root = mount(el, model, "Data explorer", signal), link = connect(model, signal);
    const picker = h("input", { type: "text", list: "", size: "18", "aria-label": "File or frame", placeholder: "File or frame", class: "source" });
    const sql = h("textarea", { rows: "3", spellcheck: "false", "aria-label": "SQL of what is shown", class: "sql mono" });
    const run = h("button", { class: "primary run", onclick: () => query() }, "Run");
    const undo = h("button", { class: "undo", hidden: true, onclick: () => { sql.value = model.get("sql"); typed(); } }, "Discard the change");
    const language = h("select", { "aria-label": "Language of the cell" }, ...[["sql", "SQL"], ["pandas", "pandas"], ["polars", "polars"]].map(([value, label]) => h("option", { value }, label)));
    const changed = h("div", { class: "notice stale", hidden: true, role: "status" }, "The source has changed since it was read.", h("button", { onclick: () => grid.change("reload", {}, "Reading it again").then(() => { changed.hidden = true; }) }, "Reload"));
    const base = h("select", { "aria-label": "Connection", class: "connection", hidden: !model.get("connections").length }, h("option", { value: "" }, "files, frames"), ...model.get("connections").map((name) => h("option", {}, name)));
    base.value = model.get("connection");
    const summary = h("div", { class: "summary", hidden: true, role: "region", "aria-label": "Summary of a column" });
    const names = h("datalist", { id: `sources-${Math.random().toString(36).slice(2)}` });
    picker.setAttribute("list", names.id);
    root.append(changed, h("div", { class: "bar query" }, sql, h("div", { class: "acts" }, run, undo, h("button", { class: "copy", onclick: () => put(sql.value).then(() => grid.say("SQL copied.")) }, "Copy"),
      language, h("button", { class: "insert", onclick: () => insert() }, "Insert as a cell"),
      h("button", { class: "to-chart", "aria-expanded": "false", onclick: (event) => toggle(event, chart) }, "Chart"), h("button", { class: "to-script", "aria-expanded": "false", onclick: (event) => toggle(event, script) }, "Script"))));
    const grid = createGrid(root, model, link, signal, { more: (place) => [["Summary", () => summarise(place.index)]] });
    grid.bar.prepend(base, picker, names);
    const chart = chartPanel(model, link, grid, root), script = scriptPanel(link, grid), pins = h("div", { class: "pins" });
    root.append(summary, chart.panel, script.panel, pins);
    const toggle = ({ currentTarget }, { panel, open }) => { panel.hidden = !panel.hidden; currentTarget.setAttribute("aria-expanded", !panel.hidden); if (!panel.hidden) open(); };
    const showPins = () => pins.replaceChildren(...model.get("pinned").map((each, place) => h("figure", {}, h("img", { src: each.uri, alt: each.caption }), h("figcaption", { class: "bar" }, h("span", { class: "dim" }, each.caption), h("span", { class: "grow" }),
      h("button", { "aria-label": `Unpin ${each.caption}`, onclick: () => link.ask("unpin", { place }).then(() => (pins.querySelector("button") ?? sql).focus()) }, "Unpin")))));

    const typed = () => { undo.hidden = sql.value === model.get("sql"); };
    const show = () => { sql.value = model.get("sql"); sql.rows = Math.min(sql.value.split("\n").length, 8); typed(); };
    const query = () => grid.change("query", { text: sql.value, connection: base.value }, "Running").then(typed);
    sql.addEventListener("input", typed);
    runBy(sql, query);
    // the connection whose tables are offered
    let listed = null;
    picker.addEventListener("focus", async () => {
      const connection = base.value;
      if (listed === connection) return;
      listed = connection;
      try { names.replaceChildren(...(await link.ask("sources", { connection })).map((value) => h("option", { value }))); } catch (problem) { listed = null; showError(grid.error, problem); }
    });
    picker.addEventListener("keydown", (event) => { if (event.key === "Enter" && picker.value.trim()) grid.change("query", { text: `SELECT * FROM ${picker.value.trim()}`, connection: base.value }, "Opening").then(() => { picker.value = ""; }); });

    const insert = async () => {
      const text = await link.ask("code", { language: language.value, magics: hasMagics() }).catch((problem) => showError(grid.error, problem));
      if (!text) return;
      if (!document.querySelector(".jp-Notebook")) { await put(text); return grid.say("The code is copied: paste it into a cell."); }
      insertCell(root, text);
      grid.say("Inserted below.");
    };
    const summarise = async (index) => {
      summary.hidden = false;
      const facts = await grid.facts(index), { name, type } = model.get("state").columns[index];
      const line = (label, value) => h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "mono" }, value));
      const share = (value) => `${number(value)} (${((100 * value) / Math.max(facts.rows, 1)).toFixed(1)} %)`;
      summary.replaceChildren(h("div", { class: "bar" }, h("span", { class: "title" }, name), h("span", { class: "dim" }, type), h("span", { class: "grow" }),
        h("button", { onclick: () => { summary.hidden = true; grid.focus(); } }, "Close")),
        !facts || facts.failed ? h("div", { class: "notice is-error" }, facts?.failed ?? "There is no profile yet.") : h("table", {}, h("tbody", {}, line("rows looked at", facts.rows < facts.of ? `${number(facts.rows)} of ${number(facts.of)}, a sample` : number(facts.rows)),
          line("missing", share(facts.missing)), line("different, about", number(facts.distinct)), line("least", facts.least ?? ""), line("greatest", facts.greatest ?? ""), ...facts.top.map(([label, size]) => line(label, share(size))))));
      summary.querySelector("button").focus();
    };
    const moved = () => { base.value = model.get("connection"); };
    const heard = { "change:sql": show, "change:connection": moved, "change:pinned": showPins };
    for (const name in heard) model.on(name, heard[name]);
    // one question at a time: while a cell runs, they would pile up
    let looking = false;
    const look = async () => {
      if (document.hidden || looking) return;
      looking = true;
      try { changed.hidden = !(await link.ask("check")); } catch { /* the kernel is gone, which is told elsewhere */ } finally { looking = false; }
    };
    root.addEventListener("focusin", later(400, look));
    const timer = setInterval(() => { if (root.isConnected && root.offsetParent) look(); }, 5_000);
    signal?.addEventListener("abort", () => { clearInterval(timer); for (const name in heard) model.off(name, heard[name]); chart.end(); });
    show(); showPins();
    link.ready();
  },
};
