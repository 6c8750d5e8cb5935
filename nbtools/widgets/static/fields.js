// Fields of a form, as nbtools.widgets.fields describes them: a label, what it means, and a message at the field.

/** Return the control of one field. */
const controlOf = (field, id) => {
  const given = { id, name: field.name, "aria-describedby": `${id}-help ${id}-wrong`, "aria-required": field.required ? "true" : null };
  if (field.kind === "flag") return h("input", { ...given, type: "checkbox" });
  if (field.kind === "choice") return h("select", given, !field.required && h("option", { value: "" }, field.default ? `(${field.default})` : "(not given)"),
    ...field.choices.map((choice) => h("option", { value: choice }, choice.replace(/^"|"$/g, ""))));
  const long = field.kind === "lines" || (field.kind === "json" && field.value.length > 60);
  if (!long) return h("input", { ...given, class: "mono", type: "text", inputmode: field.kind === "number" ? "decimal" : null, placeholder: field.default, spellcheck: "false", autocomplete: "off" });
  return h("textarea", { ...given, class: "mono", rows: Math.min(12, Math.max(field.kind === "lines" ? 4 : 2, field.value.split("\n").length)), placeholder: field.default, spellcheck: "false" });
};

/** Return a form: its element, what was edited by name, and messages at fields. `draft` is what was edited before. */
const fieldsForm = (fields, { draft = {}, edit = () => {} } = {}) => {
  const rows = new Map(), edited = { ...draft }, general = h("div", { class: "wrong", role: "alert" });
  const element = h("div", { class: "fields" }, general);
  for (const field of fields) {
    const id = `nbt-${Math.random().toString(36).slice(2)}`, control = controlOf(field, id), flag = field.kind === "flag";
    const wrong = h("div", { class: "wrong", id: `${id}-wrong`, role: "alert" });
    const value = field.name in edited ? edited[field.name] : field.value;
    if (flag) control.checked = value; else control.value = value;
    const changed = () => {
      const now = flag ? control.checked : control.value;
      if (now === field.value) delete edited[field.name]; else edited[field.name] = now;
      row.classList.toggle("is-edited", field.name in edited);
      edit(edited);
    };
    control.addEventListener(flag || field.kind === "choice" ? "change" : "input", changed);
    const row = h("div", { class: `field ${field.name in edited ? "is-edited" : ""}` },
      h("label", { for: id }, field.name, field.required && h("span", { class: "dim" }, " (required)")), control,
      h("div", { class: "dim help", id: `${id}-help` }, field.help), wrong);
    rows.set(field.name, { control, wrong });
    element.append(row);
  }
  return {
    element, edited: () => ({ ...edited }),
    /** What stands in all fields that have something. */
    typed: () => Object.fromEntries(fields.flatMap((field) => {
      const { control } = rows.get(field.name), now = field.kind === "flag" ? control.checked : control.value;
      return field.name in edited || (now !== "" && now !== field.default) ? [[field.name, now]] : [];
    })),
    showProblems: (problems = {}, focus = false) => {
      general.textContent = problems[""] ?? "";
      for (const [name, { control, wrong }] of rows) {
        wrong.textContent = problems[name] ?? "";
        control.setAttribute("aria-invalid", name in problems ? "true" : "false");
      }
      if (focus) rows.get(Object.keys(problems).find((name) => rows.has(name)))?.control.focus();
    },
    disable: (off) => { for (const { control } of rows.values()) control.disabled = off; },
  };
};
