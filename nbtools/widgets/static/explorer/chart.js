// Charts of what is shown.
import { h, later, showError, stopButton } from "../shared.js";

/** @import { GridDoor } from "../grid.js" */
/** @import { Link } from "../link.js" */
/** @import { Model } from "../shared.js" */

const KINDS = ["bar", "line", "hist", "box", "scatter"];
const AUTOMATIC = { x: "x: the first that fits", y: "y: the first that fits" };

/**
 * Return the controls that say what is drawn.
 * @param {Model} model
 */
const chartControls = (model) => {
  const kinds = KINDS.map((each) => h("option", {}, each));
  const kind = h("select", { "aria-label": "Kind of chart" }, ...kinds);
  const x = h("select", { "aria-label": "x" });
  const y = h("select", { "aria-label": "y" });
  const offerColumns = () => {
    const names = model.get("state").columns.map((/** @type {{ name: string }} */ each) => each.name);
    for (const [select, first] of /** @type {const} */ ([
      [x, AUTOMATIC.x],
      [y, AUTOMATIC.y],
    ])) {
      const before = select.value;
      const options = names.map((/** @type {string} */ name) => h("option", { value: name }, name));
      select.replaceChildren(h("option", { value: "" }, first), ...options);
      select.value = names.includes(before) ? before : "";
    }
  };
  return { kind, x, y, offerColumns };
};

/**
 * @param {Model} model
 * @param {Link} link
 * @param {GridDoor} grid
 * @param {HTMLElement} root
 */
export const chartPanel = (model, link, grid, root) => {
  const { kind, x, y, offerColumns } = chartControls(model);
  const figure = h("figure", { hidden: true });
  const failure = h("div", {});
  const onPin = async () => {
    await link.ask("pin");
    grid.say("Pinned below.");
  };
  const pin = h("button", { class: "pin", disabled: true, onclick: onPin }, "Pin");
  /** @type {AbortController | null} */
  let drawing = null;
  const stop = stopButton(() => drawing);
  /** @param {boolean} isDrawn */
  const showDrawn = (isDrawn) => {
    figure.hidden = !isDrawn;
    pin.disabled = !isDrawn;
  };
  const draw = async () => {
    drawing?.abort();
    const mine = new AbortController();
    drawing = mine;
    showError(failure, null);
    stop.hidden = false;
    try {
      const isDark = root.dataset.theme === "dark";
      const chart = { kind: kind.value, x: x.value, y: kind.value === "hist" ? "" : y.value, dark: isDark };
      const { uri, caption } = await link.ask("chart", chart, { signal: mine.signal });
      figure.replaceChildren(h("img", { src: uri, alt: caption }), h("figcaption", { class: "dim" }, caption));
      showDrawn(true);
    } catch (error) {
      showError(failure, error);
      if (!error.stopped) showDrawn(false);
    } finally {
      if (drawing === mine) {
        drawing = null;
        stop.hidden = true;
      }
    }
  };
  for (const each of [kind, x, y]) {
    each.addEventListener("change", () => {
      y.disabled = kind.value === "hist";
      draw();
    });
  }
  const button = h("button", { class: "draw", onclick: draw }, "Draw");
  const bar = h("div", { class: "bar" }, kind, x, y, button, pin, stop);
  const renew = later(50, () => {
    offerColumns();
    if (!figure.hidden) draw();
  });
  const open = () => {
    offerColumns();
    kind.focus();
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
