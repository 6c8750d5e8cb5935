// Notes: found while one types, by tags and scope; edited, deleted, restored.
export default { render({ model, el, signal }) {
  const root = mount(el, model, "Memory", signal), link = connect(model, signal), failed = h("div", {}), chosen = new Set();
  const words = h("input", { type: "search", placeholder: "search notes", "aria-label": "Search notes" });
  const scope = h("select", { "aria-label": "Whose notes" }, ...model.get("scopes").map((each) => h("option", { value: each }, each)));
  scope.value = model.get("scope");
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Tags" }), count = h("span", { class: "dim", role: "status" });
  const list = h("ul", { class: "notes", "aria-label": "Notes" }), side = h("div", { class: "side", "aria-live": "polite" });
  root.append(h("div", { class: "bar" }, h("span", { class: "title" }, "Memory"), words, scope, count, h("span", { class: "grow" }), h("button", { type: "button", onclick: () => edit(null) }, "New note")),
    chips, failed, h("div", { class: "panes" }, list, side));
  let open = null, asked = 0;

  const attempt = async (work) => { try { showError(failed, null); return await work(); } catch (error) { showError(failed, error); return null; } };
  const paint = (found) => {
    count.textContent = found.rows.length < found.total ? `${number(found.rows.length)} of ${number(found.total)} notes` : found.total === 1 ? "1 note" : `${number(found.total)} notes`;
    chips.replaceChildren(...found.tags.map(([tag, many]) => h("button", { type: "button", class: "chip", "aria-pressed": chosen.has(tag) ? "true" : "false", onclick: () => {
      if (!chosen.delete(tag)) chosen.add(tag);
      look().then(() => [...chips.children].find((each) => each.dataset.tag === tag)?.focus());
    }, "data-tag": tag }, tag, h("span", { class: "dim" }, ` ${many}`))));
    const here = root.getRootNode().activeElement, focused = list.contains(here) ? here.dataset.key : null;
    list.replaceChildren(...found.rows.map((row) => h("li", {}, h("button", { type: "button", class: "note plain", "data-key": row.key, "aria-current": row.key === open ? "true" : null, onclick: () => show(row.key) },
      h("span", { class: "mono" }, row.key), row.tags && h("span", { class: "dim" }, ` ${row.tags}`), h("span", { class: "value dim" }, row.value)))));
    if (focused != null) [...list.querySelectorAll(".note")].find((each) => each.dataset.key === focused)?.focus();
    if (!found.rows.length) list.append(h("li", { class: "inside dim" }, found.total ? "No notes fit." : "No notes yet."));
  };
  const look = async () => {
    const mine = ++asked, found = await attempt(() => link.ask("find", { words: words.value, tags: [...chosen], scope: scope.value }));
    if (found && mine === asked) paint(found);
  };
  list.addEventListener("keydown", (event) => {
    const all = [...list.querySelectorAll(".note")], at = all.indexOf(root.getRootNode().activeElement), step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); all[Math.max(0, Math.min(all.length - 1, at + step))]?.focus(); }
  });
  const show = async (key) => {
    const note = await attempt(() => link.ask("open", { key, scope: scope.value }));
    if (note) edit(note);
  };

  const edit = (note) => {
    open = note?.key ?? null;
    for (const each of list.querySelectorAll(".note")) if (each.dataset.key === open) each.setAttribute("aria-current", "true"); else each.removeAttribute("aria-current");
    let version = note?.version ?? 0;
    const fields = [...(note ? [] : [{ name: "key", kind: "text", value: "", default: "", help: "name of the note", required: true, choices: [] }]),
      { name: "value", kind: "lines", value: note?.text ?? "", default: "", help: "", required: false, choices: [] },
      { name: "JSON", kind: "flag", value: note?.is_json ?? false, default: "", help: "the value is JSON, not text", required: false, choices: [] },
      { name: "tags", kind: "text", value: note?.tags ?? "", default: "", help: "words with spaces between", required: false, choices: [] }];
    const form = fieldsForm(fields), conflict = h("div", {});
    const value = (name) => { const typed = form.edited(); return name in typed ? typed[name] : fields.find((each) => each.name === name).value; };
    const save = async () => {
      const told = await attempt(() => link.ask("save", { key: note?.key ?? value("key"), text: value("value"), is_json: value("JSON"), tags: value("tags"), version, scope: scope.value }));
      if (!told) return;
      if (told.problems) return form.showProblems(told.problems, true);
      if (told.conflict) return clash(told.conflict);
      edit(told);
      await look();
    };
    const clash = (theirs) => conflict.replaceChildren(h("div", { class: "notice", role: "alert" },
      theirs.version ? `Somebody else saved version ${theirs.version} meanwhile. Yours differs so:` : "Somebody else deleted it meanwhile. Yours is:",
      diffOf(theirs.difference, "What differs"),
      h("button", { type: "button", class: "primary", onclick: () => { version = theirs.version; conflict.replaceChildren(); save(); } }, "Save mine over it"),
      theirs.version > 0 && h("button", { type: "button", onclick: () => show(note?.key ?? value("key")) }, "Take theirs")));
    const erase = async () => {
      const { key } = note, done = await attempt(async () => { await link.ask("delete", { key, version, scope: scope.value }); return true; });
      if (!done) return;
      const undo = h("button", { type: "button", class: "primary", onclick: async () => {
        const back = await attempt(() => link.ask("restore", { key, scope: scope.value }));
        if (back) { edit(back); await look(); }
      } }, "Undo");
      open = null;
      side.replaceChildren(h("div", { class: "notice", role: "status" }, `The note ${key} is deleted; its history stays.`, undo));
      undo.focus();
      await look();
    };
    const versions = note?.versions ?? [];
    const history = versions.length > 0 && h("details", {}, h("summary", {}, `History: ${versions.length} version${versions.length > 1 ? "s" : ""}`),
      ...versions.map((one) => h("div", { class: "part inside" },
        h("div", {}, h("strong", {}, `version ${one.version}`), h("span", { class: "dim" }, ` ${one.change}, ${one.when} `), one.version !== note.version && one.change !== "delete" && one.change !== "expire" &&
          h("button", { type: "button", "aria-label": `Restore version ${one.version}`, onclick: async () => { const back = await attempt(() => link.ask("restore", { key: note.key, version: one.version, scope: scope.value })); if (back) { edit(back); await look(); } } }, "Restore")),
        one.difference && diffOf(one.difference, `Changes of version ${one.version}`))));
    side.replaceChildren(h("div", { class: "bar" }, h("span", { class: "mono title" }, note?.key ?? "a new note"), note && h("span", { class: "dim" }, `version ${note.version}, ${note.updated}${note.expires ? `, until ${note.expires}` : ""}`)),
      h("div", { class: "inside" }, form.element, conflict), h("div", { class: "bar" }, h("button", { type: "button", class: "primary", onclick: save }, "Save"), h("span", { class: "grow" }), note && h("button", { type: "button", class: "danger", onclick: erase }, "Delete")), ...(history ? [history] : []));
  };
  words.addEventListener("input", later(120, look));
  scope.addEventListener("change", () => { chosen.clear(); side.replaceChildren(h("div", { class: "inside dim" }, "Choose a note.")); open = null; look(); });
  side.append(h("div", { class: "inside dim" }, "Choose a note."));
  paint(model.get("found"));
  link.ready();
} };
