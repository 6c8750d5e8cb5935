// Charts of what is shown.
import { columnChoice, h, insertCell, later, showError, stopButton } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Column } from "../grid/state.js" */
/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */

const KINDS = ["bar", "line", "hist", "box", "scatter"];
const MEASURES = ["sum", "mean", "min", "max", "count"];

/**
 * Return the controls that say what is drawn.
 * @param {Model} model
 */
const chartControls = (model) => {
  const kinds = KINDS.map((each) => h("option", {}, each));
  const kind = h("select", { "aria-label": "Kind of chart" }, ...kinds);
  const { element: x, ...xs } = columnChoice("x", "x: automatic");
  const { element: y, ...ys } = columnChoice("y", "y: count, or automatic");
  const measure = h("select", { "aria-label": "Height of the bars" }, ...MEASURES.map((each) => h("option", {}, each)));
  /** Only bars of a y have heights to choose, and a histogram has no y. */
  const fit = () => {
    measure.hidden = kind.value !== "bar" || !y.value;
    y.disabled = kind.value === "hist";
  };
  for (const each of [kind, y]) each.addEventListener("change", fit);
  const wanted = () => ({
    kind: measure.hidden ? kind.value : `bar:${measure.value}`,
    x: x.value,
    y: y.disabled ? "" : y.value,
  });
  const offerColumns = () => {
    const names = model.get("state").columns.map((/** @type {{ name: string }} */ each) => each.name);
    xs.offer(names);
    ys.offer(names);
    fit();
  };
  /** Begin with a column: its histogram where it has numbers or dates, else how often each of its values is there. */
  const beginWith = (/** @type {string} */ column) => {
    const { columns } = model.get("state");
    const own = columns.find((/** @type {Column} */ { name }) => name === column);
    kind.value = own?.kind === "number" || /^(date|timestamp)/.test(own?.type) ? "hist" : "bar";
    xs.choose(column);
    ys.choose("");
    fit();
  };
  return { kind, x, y, measure, wanted, offerColumns, beginWith };
};

/**
 * @param {Model} model
 * @param {Link} link
 * @param {GridDoor} grid
 * @param {HTMLElement} root
 */
export const chartPanel = (model, link, grid, root) => {
  const { kind, x, y, measure, wanted, offerColumns, beginWith } = chartControls(model);
  const figure = h("figure", { hidden: true });
  const failure = h("div", {});
  const pin = h("button", { class: "pin", disabled: true }, "Pin");
  const keep = h("button", { class: "keep", disabled: true }, "Insert as cell");
  pin.addEventListener("click", async () => {
    await link.ask("pin");
    grid.say("Pinned below.");
  });
  keep.addEventListener("click", async () => insertCell(root, await link.ask("chart_code", wanted())));
  /** @type {AbortController | null} */
  let drawing = null;
  const stop = stopButton(() => drawing);
  /** @param {boolean} isDrawn */
  const showDrawn = (isDrawn) => {
    figure.hidden = !isDrawn;
    pin.disabled = keep.disabled = !isDrawn;
  };
  const draw = async () => {
    drawing?.abort();
    const mine = new AbortController();
    drawing = mine;
    failure.replaceChildren(h("div", { class: "hint dim", role: "status" }, "Drawing…"));
    stop.hidden = false;
    try {
      const chart = { ...wanted(), dark: root.dataset.theme === "dark" };
      const { uri, caption } = await link.ask("chart", chart, { signal: mine.signal });
      showError(failure, null);
      figure.replaceChildren(h("img", { src: uri, alt: caption }), h("figcaption", { class: "dim" }, caption));
      showDrawn(true);
    } catch (error) {
      if (drawing === mine) showError(failure, error);
      if (!error.stopped) showDrawn(false);
    } finally {
      if (drawing === mine) {
        drawing = null;
        stop.hidden = true;
      }
    }
  };
  for (const each of [kind, x, y, measure]) each.addEventListener("change", draw);
  const button = h("button", { class: "draw", onclick: draw }, "Draw");
  const bar = h("div", { class: "bar" }, kind, x, measure, y, button, pin, keep, stop);
  const renew = later(50, () => {
    offerColumns();
    if (!figure.hidden) draw();
  });
  const open = (/** @type {string | undefined} */ column) => {
    offerColumns();
    kind.focus();
    if (!column) return;
    beginWith(column);
    draw();
  };
  return { elements: [bar, failure, figure], open, renew };
};

/**
 * Show the charts that are pinned.
 * @param {Model} model
 * @param {Link} link
 * @param {HTMLElement} element
 * @param {GridDoor} grid gets the focus after the last one is gone
 */
export const showPins = (model, link, element, grid) => {
  /** @type {{ uri: string, caption: string }[]} */
  const pinned = model.get("pinned");
  const figures = pinned.map(({ uri, caption }, index) => {
    const unpin = async () => {
      await link.ask("unpin", { place: index });
      (element.querySelector("button") ?? grid).focus();
    };
    const button = h("button", { "aria-label": `Unpin ${caption}`, onclick: unpin }, "Unpin");
    const text = h("span", { class: "dim" }, caption);
    const line = h("figcaption", { class: "bar" }, text, h("span", { class: "grow" }), button);
    return h("figure", {}, h("img", { src: uri, alt: caption }), line);
  });
  element.replaceChildren(...figures);
};
