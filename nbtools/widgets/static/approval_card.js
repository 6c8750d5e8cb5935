// The card of a call in a cell that runs.
export default { render({ model, el, signal }) {
  const root = mount(el, model, model.get("title"), signal), link = connect(model, signal), place = h("div", { "aria-live": "polite" });
  root.append(place);
  const paint = () => {
    const state = model.get("state"), asked = model.get("asked"), told = model.get("told");
    if (state !== "asking") return place.replaceChildren(answeredLine(asked, told, told.startsWith("allowed")));
    place.replaceChildren(approvalPanel(asked, {
      check: (edited) => link.ask("check", { edited }), decide: (given) => link.ask("decide", given),
      draft: model.get("draft"), keep: (edited) => { model.set("draft", edited); model.save_changes(); },
    }));
  };
  model.on("change:state", paint);
  signal?.addEventListener("abort", () => model.off("change:state", paint));
  paint();
  link.ready();
} };
