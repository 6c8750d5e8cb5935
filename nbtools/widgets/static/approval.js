// A call that waits for a yes: its arguments in fields, what it would change, a button for each scope.

/** Return a text with its added and removed lines marked. */
const diffOf = (text, label) => h("pre", { class: "diff mono", tabindex: "0", "aria-label": label },
  ...text.split("\n").map((line) => h("span", { class: line[0] === "+" ? "is-added" : line[0] === "-" ? "is-removed" : line[0] === "@" ? "dim" : "" }, `${line}\n`)));
const partOf = ({ title, text }) => h("div", { class: "part" }, h("div", { class: "dim" }, title), text && diffOf(text, title));

/** Return the card of a call. `check` and `decide` ask the kernel, `keep` takes what was edited so far. */
const approvalPanel = (asked, { check, decide, draft = {}, keep = () => {} }) => {
  const parts = h("div", {}, ...asked.parts.map(partOf)), why = h("input", { type: "text", size: "26", placeholder: "why not (the model is told)", "aria-label": "Reason of a no" });
  const failed = h("div", {}), form = fieldsForm(asked.fields, { draft, edit: (edited) => { keep({ ...edited }); name(edited); look(edited); } });
  const look = later(250, async (edited) => {
    try {
      const told = await check({ ...edited });
      form.showProblems(told.problems);
      if (told.parts) parts.replaceChildren(...told.parts.map(partOf));
      showError(failed, null);
    } catch (error) { showError(failed, error); }
  });
  const answer = async (word) => {
    for (const each of buttons) each.disabled = true;
    try {
      const told = await decide({ answer: word, edited: form.edited(), reason: word === "no" ? why.value : "" });
      form.showProblems(told.problems, true);
      if (word === "later" || Object.keys(told.problems).length) for (const each of buttons) each.disabled = false;
    } catch (error) { for (const each of buttons) each.disabled = false; showError(failed, error); }
  };
  const button = (word, text, kind) => h("button", { type: "button", class: kind, "data-answer": word, onclick: () => answer(word) }, text);
  const once = button("once", "Allow once", "primary"), tool = button("tool", `Allow ${asked.tool} all session`), content = button("content", "Allow exactly this all session");
  const buttons = [once, tool, content, button("later", "Later"), button("no", "No", "danger")];
  const name = (edited) => {
    const changed = Object.keys(edited).length > 0;
    once.textContent = changed ? "Allow once with these changes" : "Allow once";
    content.textContent = changed ? "Allow exactly this, as changed, all session" : "Allow exactly this all session";
  };
  name(draft);
  if (Object.keys(draft).length) look(draft);
  why.addEventListener("keydown", (event) => { if (event.key === "Enter") answer("no"); });
  return h("div", { class: "approval", role: "group", "aria-label": `${asked.tool} asks for approval` },
    h("div", { class: "bar" }, h("span", { class: "pill is-warn" }, "needs approval"), h("code", { class: "mono title" }, asked.tool), h("span", { class: "dim" }, `${asked.consequence}, asked for by ${asked.caller}`)),
    h("div", { class: "inside" }, form.element, parts, h("div", { class: "dim" }, asked.reason), failed),
    h("div", { class: "bar" }, ...buttons.slice(0, 4), h("span", { class: "grow" }), why, buttons[4]));
};

/** Return what stands in place of a card that was answered. */
const answeredLine = (asked, told, isYes, isOpen = false) => h("details", { class: "answered" },
  h("summary", {}, h("span", { class: `pill ${isOpen ? "is-warn" : isYes ? "is-ok" : "is-bad"}` }, isOpen ? "elsewhere" : isYes ? "allowed" : "not run"), " ", h("code", { class: "mono" }, asked.tool), h("span", { class: "dim" }, ` ${told}`)),
  h("div", { class: "inside" }, ...asked.fields.map((field) => h("div", { class: "part" }, h("div", { class: "dim" }, field.name), h("pre", { class: "mono", tabindex: "0", "aria-label": field.name }, String(field.value)))), ...asked.parts.map(partOf)));
