// The table: the grid alone.
export default {
  render({ model, el, signal }) {
    const root = mount(el, model, model.get("title") || "Table", signal), link = connect(model, signal);
    createGrid(root, model, link, signal);
    link.ready();
  },
};
