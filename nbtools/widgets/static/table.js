// The table: the grid alone.
import { Link } from "./link.js";
import { mount } from "./shared.js";
import { createGrid } from "./grid.js";

/** @import { View } from "./shared.js" */

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const root = mount(el, model, model.get("title") || "Table", signal);
    const link = new Link(model, root, signal);
    createGrid(root, model, link, signal);
    link.ready();
  },
};
