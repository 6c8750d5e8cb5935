// Cards of proposed cells, below the cell that each is about.
import { applied, placeOfCell } from "./cells.js";

/** @import { Panel, Question } from "./cells.js" */

const TITLES = {
  insert: ["Insert", "proposes a new cell here"],
  replace: ["Replace", "proposes to change this cell"],
  delete: ["Delete", "proposes to delete this cell"],
};
const SIGNS = { "+": "nbt-more", "-": "nbt-less" };

/**
 * @param {string} tag
 * @param {string} classes
 * @param {(Node | string)[]} inside
 */
const element = (tag, classes, ...inside) => {
  const node = document.createElement(tag);
  node.className = classes;
  node.append(...inside);
  return node;
};

/**
 * Return a card, and what its buttons are.
 * @param {Question} question
 */
const cardOf = ({ action = "insert", by = "", reason = "", lines = [] }) => {
  const [word, what] = TITLES[action];
  const diff = lines.map(([sign, text]) =>
    element("span", SIGNS[/** @type {"+" | "-"} */ (sign)] ?? "", `${sign} ${text}\n`),
  );
  const accept = element("button", "jp-mod-styled jp-mod-accept", word);
  const dismiss = element("button", "jp-mod-styled jp-mod-reject", "Dismiss");
  const head = element("p", "", element("b", "", `${by} ${what}. `), reason);
  const card = element("section", "nbt-proposal", head, element("pre", "", ...diff), accept, " ", dismiss);
  card.setAttribute("aria-label", `${by} ${what}`);
  // Keys in the card are the card's: Enter and blanks press its buttons.
  card.dataset.lmSuppressShortcuts = "true";
  return { card, accept, dismiss };
};

/**
 * Show a proposal, and return what is answered at once.
 * @param {Panel & { content: any, disposed: any, sessionContext: any }} panel
 * @param {Question} question
 * @param {any} comm
 */
export const propose = (panel, question, comm) => {
  const at = placeOfCell(panel, question);
  if (typeof at === "string") return { problem: at };
  const { content } = panel;
  const anchor = content.widgets[at];
  const parent = (anchor ?? content).node;
  const { card, accept, dismiss } = cardOf(question);
  const forget = () => {
    panel.sessionContext.statusChanged.disconnect(lose);
    panel.disposed.disconnect(go);
    anchor?.disposed.disconnect(go);
    comm.onClose = null;
    card.remove();
  };
  /** @param {string} outcome */
  const end = (outcome) => {
    forget();
    if (!comm.isDisposed) comm.send({ outcome });
  };
  const go = () => end("gone");
  /** @param {string} words */
  const refuse = (words) => {
    card.replaceChildren(element("p", "", `${words}: nothing was done. `), dismiss);
    dismiss.onclick = () => card.remove();
    parent.append(card);
  };
  /** @type {(context: any, status: string) => void} */
  const lose = (_, status) => {
    if (!/restarting|terminating|dead/.test(status)) return;
    forget();
    refuse("The kernel that made the proposal has ended");
  };
  panel.sessionContext.statusChanged.connect(lose);
  panel.disposed.connect(go);
  anchor?.disposed.connect(go);
  // It is decided in another page, or shown again in a new card.
  comm.onClose = forget;
  accept.onclick = () => {
    // A cell that is deleted goes by this click.
    anchor?.disposed.disconnect(go);
    const index = applied(panel, question);
    end(index === null ? "stale" : "accepted");
    if (index === null) return refuse("The cell has changed meanwhile");
    content.mode = "command";
    content.activeCellIndex = Math.min(index, content.widgets.length - 1);
    content.activate();
  };
  dismiss.onclick = () => end("dismissed");
  parent.append(card);
  return { outcome: "waiting" };
};
