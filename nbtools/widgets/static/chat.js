// A conversation with an agent: text as it is written, a card for each call, approvals and questions in their place.
const TONES = { done: "is-ok", failed: "is-bad", starting: "is-run", running: "is-run", pending: "is-warn", waits: "is-warn", elsewhere: "is-run" };

export default { render({ model, el, signal }) {
  const again = () => (model.get("run_id") && model.get("state") === "pending" ? `%load_ext nbtools\n%agent resume ${model.get("run_id")}` : null);
  const root = mount(el, model, model.get("title"), signal, { label: "Insert a cell that goes on", text: again }), link = connect(model, signal);
  const pill = h("span", { class: "pill" }), failed = h("div", {}), log = h("div", { class: "log", role: "log", "aria-live": "polite", tabindex: "0", "aria-label": "Conversation" });
  const stop = h("button", { type: "button", class: "danger", onclick: () => link.ask("stop").catch((error) => showError(failed, error)) }, "Stop");
  const box = h("textarea", { rows: "2", "aria-label": "Message", placeholder: "Ask about your data. Enter sends, Shift+Enter makes a new line." });
  const send = async () => {
    const text = box.value.trim();
    if (!text) return;
    box.value = "";
    try { showError(failed, null); await link.ask("send", { text }); } catch (error) { box.value ||= text; showError(failed, error); }
  };
  box.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); } });
  root.append(h("div", { class: "bar" }, h("span", { class: "title" }, model.get("title")), pill, h("span", { class: "grow" }), stop), log, failed,
    ...(model.get("can_write") ? [h("div", { class: "bar compose" }, box, h("button", { type: "button", class: "primary", onclick: send }, "Send"))] : []));

  const texts = new Map(), shown = new Map(), drafts = new Map();
  const follow = (work) => { // the end stays in sight for whoever looks at it
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    work();
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  };
  const undo = (item) => {
    const place = h("div", {}), button = h("button", { type: "button", onclick: async () => {
      button.disabled = true;
      try {
        const rows = await link.ask("undo", { run: item.run });
        place.replaceChildren(rows.length ? h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ...["tool", "target", "what became of it"].map((each) => h("th", { scope: "col" }, each)))),
          h("tbody", {}, ...rows.map((row) => h("tr", {}, h("td", {}, row.tool), h("td", {}, row.target), h("td", {}, row.undone ? "taken back" : `left: ${row.why}`))))) : h("span", { class: "dim" }, "The run changed nothing."));
        place.scrollIntoView({ block: "nearest" });
      } catch (error) { button.disabled = false; showError(place, error); }
    } }, "Undo what it changed");
    return [button, place];
  };
  const make = {
    user: (item) => h("div", { class: "message is-user" }, item.text),
    text: (item) => {
      const node = document.createTextNode(texts.get(item.id) ?? "");
      return Object.assign(h("div", { class: "message", "data-text": item.id }, node), { grow: (text) => { if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length)); else node.data = text; } });
    },
    note: (item) => h("div", { class: "dim" }, item.text),
    call: (item) => h("details", { class: "call", "data-state": item.state },
      h("summary", {}, h("span", { class: `pill ${TONES[item.state] ?? ""}` }, item.state), " ", h("code", {}, item.tool), h("span", { class: "dim" }, item.seconds != null ? ` ${item.seconds.toFixed(2)} s  ${item.line}` : "")),
      h("div", { class: "inside" }, h("pre", { tabindex: "0", "aria-label": "Arguments" }, item.given ?? ""), item.text && h("pre", { tabindex: "0", "aria-label": "Result" }, item.text),
        item.code && h("div", {}, h("button", { type: "button", onclick: () => insertCell(root, item.code) }, "Insert as cell"))),
      ...(item.pictures ?? []).map((each) => h("img", { src: each.uri, alt: each.name }))),
    approval: (item) => (item.state !== "asking" ? answeredLine(item.asked, item.told, item.told.startsWith("allowed"), item.state === "elsewhere") : approvalPanel(item.asked, {
      check: (edited) => link.ask("check", { id: item.id, edited }), decide: (given) => link.ask("decide", { id: item.id, ...given }),
      draft: drafts.get(item.id) ?? {}, keep: (edited) => drafts.set(item.id, edited) })),
    question: (item) => {
      if (item.told) return h("div", { class: "dim" }, `${item.text} ${item.told}`);
      const tell = (answer) => answer && link.ask("tell", { id: item.id, answer }).catch((error) => showError(failed, error)), field = h("input", { type: "text", "aria-label": item.text });
      field.addEventListener("keydown", (event) => { if (event.key === "Enter") tell(field.value); });
      return h("div", { class: "question", role: "group", "aria-label": "The agent asks" }, h("strong", {}, item.text), h("div", { class: "answers" },
        ...item.choices.map((each) => h("button", { type: "button", onclick: () => tell(each) }, each)), ...(item.choices.length ? [] : [field, h("button", { type: "button", onclick: () => tell(field.value) }, "Answer")])));
    },
    end: (item) => h("div", { class: "dim end" }, item.error && h("div", { class: "notice is-error" }, item.error), h("div", {}, item.text), ...(item.is_last ? undo(item) : [])),
  };
  const paint = () => follow(() => {
    const state = model.get("state");
    pill.className = `pill ${TONES[state] ?? ""}`;
    pill.textContent = { idle: model.get("can_write") ? "ready" : "over", starting: "starting", running: "at work", pending: "waits for you", elsewhere: "goes on elsewhere" }[state] ?? state;
    stop.hidden = state !== "running";
    for (const item of model.get("items")) {
      const key = JSON.stringify(item), old = shown.get(item.id);
      if (old?.key === key) continue;
      const node = make[item.kind](item);
      if (old?.node.open) node.open = true;
      if (old) old.node.replaceWith(node); else log.append(node);
      shown.set(item.id, { node, key });
    }
  });
  link.text("*", (text, name) => { texts.set(name, text); follow(() => shown.get(name)?.node.grow?.(text)); });
  onChange(model, ["items", "state"], paint, signal);
  // What waits may be answered in another cell or process; one look at a time, which a busy kernel answers late.
  let looks = false;
  const clock = setInterval(() => {
    if (looks || document.hidden || !["pending", "elsewhere"].includes(model.get("state"))) return;
    looks = true;
    link.ask("look").catch((error) => showError(failed, error)).finally(() => { looks = false; });
  }, 2000);
  signal?.addEventListener("abort", () => clearInterval(clock));
  paint();
  link.ready();
} };
