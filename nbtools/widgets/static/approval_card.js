// The card of a call in a cell that runs.
import { answeredLine, approvalPanel } from "./approval.js";
import { Link } from "./link.js";
import { h, mount } from "./shared.js";

/** @import { Values } from "./fields.js" */
/** @import { View } from "./shared.js" */

export default {
  /** @param {View} view */
  render({ model, el, signal }) {
    const root = mount(el, model, model.get("title"), signal);
    const link = new Link(model, root, signal);
    const card = h("div", { "aria-live": "polite" });
    root.append(card);
    /** @param {Values} edited */
    const save = (edited) => {
      model.set("draft", edited);
      model.save_changes();
    };
    const paint = () => {
      const proposal = model.get("proposal");
      if (model.get("state") !== "asking") {
        card.replaceChildren(answeredLine(proposal, model.get("outcome")));
        return;
      }
      const panel = approvalPanel(proposal, {
        check: (edited) => link.ask("check", { edited }),
        decide: (decision) => link.ask("decide", decision),
        draft: model.get("draft"),
        save,
      });
      card.replaceChildren(panel);
    };
    model.on("change:state", paint);
    signal?.addEventListener("abort", () => model.off("change:state", paint));
    paint();
    link.ready();
  },
};
