// The grid: any number of rows and columns, of which only those in sight are elements.
// `viewport` scrolls an empty `sizer`; the `layer` that sticks to its corner is drawn anew for `top` and `left`. Chromium
// ends at 33 million pixels: above `LONGEST` a drag of the scroll bar goes to a share of the rows, all else by pixels.
const LONGEST = 8_000_000, HEAD = 76, MARGIN = 30, KEPT = 4_000, NARROW = 56, WIDE = 420, COUNTED = 200_000;
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

const createGrid = (root, model, link, signal, { more = () => [] } = {}) => {
  const state = () => model.get("state");
  const id = `nbt-${Math.random().toString(36).slice(2)}`;
  const view = { wrap: false, pinned: [], widths: {}, ...model.get("view") };
  const cache = new Map();
  let top = 0, left = 0, active = { row: 0, column: 0 }, anchor = null, asking = false, placed = 0, drawn = 0, profiling = null, busy = null, brush = null;
  const profiles = new Map();

  const title = h("span", { class: "title" }), count = h("span", { class: "dim count" }), live = h("div", { class: "unseen", role: "status", "aria-live": "polite" });
  const goTo = h("input", { type: "text", inputmode: "numeric", size: "11", placeholder: "Go to row", "aria-label": "Go to row", class: "goto" });
  const find = h("input", { type: "search", size: "14", placeholder: "Find column", "aria-label": "Find column", class: "find" });
  const wrap = h("button", { "aria-pressed": String(view.wrap), class: "wrap", onclick: () => { view.wrap = !view.wrap; wrap.setAttribute("aria-pressed", view.wrap); keep(); resize(); } }, "Wrap");
  const bar = h("div", { class: "bar" }, title, count, h("span", { class: "grow" }), find, goTo, wrap);
  const work = h("div", { class: "bar work", hidden: true }), error = h("div", { class: "errors" }), chips = h("div", { class: "bar chips", hidden: true });
  const head = h("div", { class: "head", role: "rowgroup" }), body = h("div", { class: "body", role: "rowgroup" });
  const layer = h("div", { class: "layer", role: "presentation" }, body, head), sizer = h("div", { class: "sizer", role: "presentation" }, layer);
  const viewport = h("div", { class: "viewport", role: "grid", tabindex: "0", "aria-multiselectable": "true", "aria-label": model.get("title") || "Table" }, sizer);
  const side = h("div", { class: "side", hidden: true, role: "dialog", "aria-label": "Whole value" });
  root.append(bar, work, error, chips, viewport, side, live);

  const keep = () => { model.set("view", { ...view }); model.save_changes(); };
  const say = (text) => { live.textContent = text; };
  const rowHeight = () => (view.wrap ? 64 : 24);
  const total = () => state().rows * rowHeight();
  const height = () => Math.max(viewport.clientHeight - HEAD, 1);
  const gutter = () => 22 + 8 * Math.max(3, number(state().rows).length);
  const sorted = (name) => state().order.find((each) => each[0] === name);

  // -- where columns stand: pinned ones first, the others at their offset less `left`
  let places = [], pinnedWidth = 0, allWidth = 0;
  const guess = ({ name, kind }) => clamp(name.length * 7.4 + 40, kind === "number" ? 96 : kind === "time" ? 150 : 120, 240);
  const layout = () => {
    const { columns } = state(), pinned = view.pinned.map((name) => columns.findIndex((each) => each.name === name)).filter((index) => index >= 0);
    let x = 0;
    const shown = state().shown ?? [...columns.keys()];
    const order = [...pinned.filter((index) => shown.includes(index)), ...shown.filter((index) => !pinned.includes(index))], fixed = order.length - shown.filter((index) => !pinned.includes(index)).length;
    places = order.map((index, place) => {
      const width = view.widths[columns[index].name] ?? guess(columns[index]), found = { index, place, x, width, pinned: place < fixed };
      x += width;
      return found;
    });
    pinnedWidth = places.filter((each) => each.pinned).reduce((sum, each) => sum + each.width, 0);
    allWidth = x;
    viewport.setAttribute("aria-colcount", places.length + 1);
  };
  const roomX = () => Math.max(viewport.clientWidth - gutter() - pinnedWidth, 1);
  const seen = () => {
    const free = places.filter((each) => each.pinned), room = roomX();
    // the first free column in sight, by halves
    let low = free.length, high = places.length;
    while (low < high) { const middle = (low + high) >> 1; if (places[middle].x + places[middle].width - pinnedWidth > left) high = middle; else low = middle + 1; }
    for (let place = low; place < places.length && places[place].x - pinnedWidth < left + room; place++) free.push(places[place]);
    return free;
  };

  // -- scrolling
  const longest = () => Math.min(total(), LONGEST);
  const ratio = () => (total() - height()) / Math.max(longest() - height(), 1);
  const move = (nextTop, nextLeft = left) => {
    top = clamp(nextTop, 0, Math.max(total() - height(), 0));
    left = clamp(nextLeft, 0, Math.max(allWidth - pinnedWidth - roomX(), 0));
    viewport.scrollTop = Math.round(top / ratio()); viewport.scrollLeft = Math.round(left);
    // what the browser made of it: its own event says nothing new
    placed = viewport.scrollTop;
    paint();
  };
  viewport.addEventListener("scroll", () => {
    left = clamp(viewport.scrollLeft, 0, Math.max(allWidth - pinnedWidth - roomX(), 0));
    const now = viewport.scrollTop, by = now - placed, end = longest() - height();
    if (Math.abs(by) >= 1) {
      placed = now;
      const near = ratio() > 1.01 && Math.abs(by) <= height() && now > 0 && now < end - 1;
      top = clamp(near ? top + by : now * ratio(), 0, Math.max(total() - height(), 0));
    }
    paint();
  }, { passive: true });
  viewport.addEventListener("wheel", (event) => {
    if (event.ctrlKey) return;
    // a tick is three rows
    const unit = event.deltaMode === 1 ? rowHeight() : event.deltaMode === 2 ? height() : (3 * rowHeight()) / 100;
    const down = (event.shiftKey ? 0 : event.deltaY) * unit, right = event.deltaX + (event.shiftKey ? event.deltaY : 0);
    const before = [top, left];
    move(top + down, left + right);
    // at an end, the page scrolls on
    if (before[0] !== top || before[1] !== left) event.preventDefault();
  }, { passive: false });

  // -- cells
  const missing = (first, last, columns) => {
    for (let row = first; row < last; row++) { const cells = cache.get(row); if (!cells || columns.some(({ index }) => cells[index] === undefined)) return true; }
    return false;
  };
  const fetchCells = async (first, last, columns) => {
    if (asking) return;
    asking = true;
    // Sorted rows lie anywhere in the source, and each costs time.
    const rev = state().rev, margin = state().order.length ? 4 : MARGIN, start = Math.max(0, first - margin), stop = Math.min(state().rows, last + margin), indexes = columns.map((each) => each.index);
    try {
      const found = await link.ask("cells", { start, stop, columns: indexes, rev });
      if (found && rev === state().rev) {
        if (cache.size > KEPT) cache.clear();
        found.forEach((row, offset) => { const cells = cache.get(start + offset) ?? {}; row.forEach((text, place) => { cells[indexes[place]] = text; }); cache.set(start + offset, cells); });
        if (fit(found, columns)) resize();
      }
    } catch (problem) { showError(error, problem); if (!problem.stopped) return; } finally { asking = false; }
    paint();
  };
  const fitted = new Set();
  // widths that fit what is first seen of a column
  const fit = (rows, columns) => {
    let changed = false;
    columns.forEach(({ index }, place) => {
      const { name, kind } = state().columns[index];
      if (fitted.has(name) || !rows.length) return;
      fitted.add(name);
      if (view.widths[name]) return;
      const most = Math.max(...rows.map((row) => short(row[place], kind)?.length ?? 4));
      view.widths[name] = clamp(Math.max(most * 7.6 + 22, guess(state().columns[index])), NARROW, 300);
      changed = true;
    });
    return changed;
  };
  const short = (text, kind) => (kind === "number" && text?.length > 14 && /[.e]/.test(text) && Number.isFinite(Number(text)) ? String(Number(Number(text).toPrecision(8))) : text);

  // -- drawing
  const paint = () => { if (!drawn) drawn = requestAnimationFrame(() => { drawn = 0; draw(); }); };
  const chosen = () => {
    const from = anchor ?? active;
    return { top: Math.min(from.row, active.row), bottom: Math.max(from.row, active.row), left: Math.min(from.column, active.column), right: Math.max(from.column, active.column) };
  };
  const draw = () => {
    const { rows, columns } = state(), tall = rowHeight(), first = Math.floor(top / tall), last = Math.min(rows, Math.ceil((top + height()) / tall)), across = seen(), box = chosen(), margin = gutter();
    const x = (place) => margin + (place.pinned ? place.x : place.x - left);
    head.replaceChildren(h("div", { role: "row", "aria-rowindex": "1", class: "row" },
      ...across.toReversed().map((place) => header(place, x(place), box)), h("div", { role: "columnheader", class: "cell corner", "aria-colindex": "1", style: `width:${margin}px;height:${HEAD}px` }, h("span", { class: "unseen" }, "row"))));
    const lines = [];
    for (let row = first; row < last; row++) {
      const cells = cache.get(row);
      lines.push(h("div", { role: "row", class: row % 2 ? "row odd" : "row", "aria-rowindex": String(row + 2), style: `top:${HEAD + row * tall - top}px;height:${tall}px` },
        ...across.toReversed().map((place) => cell(row, place, x(place), cells?.[place.index], columns[place.index], box)),
        h("div", { role: "rowheader", "aria-colindex": "1", class: "cell number", style: `width:${margin}px` }, number(row + 1))));
    }
    body.replaceChildren(...lines);
    body.classList.toggle("wrapped", view.wrap);
    layer.classList.toggle("shifted", left > 0 && pinnedWidth > 0);
    const shownActive = root.querySelector(`[id="${id}-${active.row}-${active.column}"]`);
    if (shownActive) viewport.setAttribute("aria-activedescendant", shownActive.id); else viewport.removeAttribute("aria-activedescendant");
    if (across.length && missing(first, last, across)) fetchCells(first, last, across); else { viewport.dataset.settled = `${first}-${last}`; finish(); profileNext(across); }
  };
  const position = (place, x) => `left:${x}px;width:${place.width}px`;
  const cell = (row, place, x, text, column, box) => {
    const inside = row >= box.top && row <= box.bottom && place.place >= box.left && place.place <= box.right, here = row === active.row && place.place === active.column;
    const none = text === null || text === "NaN";
    return h("div", { role: "gridcell", id: `${id}-${row}-${place.place}`, "aria-colindex": String(place.place + 2), "aria-selected": String(inside && (here || anchor !== null)), dir: "auto",
      class: `cell ${column.kind}${text === undefined ? " waits" : ""}${none ? " none" : ""}${inside && anchor ? " chosen" : ""}${here ? " active" : ""}${place.pinned ? " pinned" : ""}`, style: position(place, x), title: text?.length > 24 ? text : null }, text === undefined ? "" : text === null ? "null" : short(text, column.kind));
  };
  const header = (place, x, box) => {
    const { name, type } = state().columns[place.index], by = sorted(name), here = active.row === -1 && active.column === place.place;
    return h("div", { role: "columnheader", id: `${id}--1-${place.place}`, "aria-colindex": String(place.place + 2), "aria-sort": by ? (by[1] ? "descending" : "ascending") : "none",
      class: `cell${here ? " active" : ""}${place.pinned ? " pinned" : ""}`, style: `${position(place, x)};height:${HEAD}px`, title: `${name} · ${type}`, "data-place": String(place.place) },
      h("div", { class: "name" }, h("b", {}, name || "(no name)"), by && h("span", { "aria-hidden": "true" }, by[1] ? " ▼" : " ▲")),
      h("div", { class: "facts dim" }, type.toLowerCase()), sketch(place), h("div", { class: "grip", "aria-hidden": "true" }));
  };

  // -- all rows, once the first ones are seen: reading them takes all cores
  let finishing = false;
  const finish = () => {
    if (finishing || busy || state().whole) return;
    finishing = true;
    // After the browser has painted: a frame is drawn before this one ends.
    requestAnimationFrame(() => setTimeout(() => { if (busy) finishing = false; else if (!signal?.aborted) change("finish", {}, "Reading all rows"); }));
  };

  // -- profiles: one at a time, when no page is waited for
  const profileNext = (across) => {
    if (profiling || busy || !state().whole || asking) return;
    const next = across.find(({ index }) => !profiles.has(index));
    if (next) setTimeout(() => profile(next.index), 60);
  };
  const profile = async (index, exact = false) => {
    if (busy || !state().whole || (!exact && (asking || profiling || profiles.has(index)))) return;
    profiling?.abort();
    // a second click stops it
    if (profiling?.index === index) return;
    const rev = state().rev, mine = (profiling = new AbortController());
    if (exact) { mine.index = index; paint(); }
    try {
      const facts = await link.ask("profile", { column: index, exact, rev }, { signal: mine.signal });
      if (facts && rev === state().rev) profiles.set(index, facts);
      if (facts && exact) say(`Profile of ${state().columns[index].name} from all rows.`);
    } catch (problem) { if (!problem.stopped && rev === state().rev) profiles.set(index, { failed: problem.message }); } finally { if (profiling === mine) profiling = null; }
    paint();
  };
  // behind those that are looked at just now
  const factsOf = async (index) => {
    for (let tries = 0; tries < 200 && !profiles.has(index); tries++) {
      await profile(index);
      if (!profiles.has(index)) await new Promise((done) => setTimeout(done, 50));
    }
    return profiles.get(index);
  };
  const sketch = (place) => {
    const facts = profiles.get(place.index), place_ = h("div", { class: "sketch" });
    if (!facts || facts.failed) return fill(place_, { title: facts?.failed }, []);
    const share = facts.rows ? facts.missing / facts.rows : 0, sampled = facts.rows < facts.of;
    const note = [facts.missing && `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} % missing`, profiling?.index === place.index ? "reading all" : sampled && `${few(facts.rows)} of ${few(facts.of)}`].filter(Boolean).join(", ");
    const whole = sampled ? `from ${number(facts.rows)} of ${number(facts.of)} rows; a click reads all` : `from all ${number(facts.of)} rows`;
    if (facts.bins.length) {
      const most = Math.max(...facts.bins.map((each) => each[2]), 1), wide = 100 / facts.bins.length;
      place_.append(svg("svg", { class: "bars", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": `${facts.least} to ${facts.greatest}, ${whole}` },
        ...facts.bins.map(([, , size, label], at) => svg("rect", { x: at * wide, width: Math.max(wide - 0.8, 0.5), y: 24 - (24 * size) / most, height: (24 * size) / most, class: brush?.index === place.index && at >= Math.min(brush.from, brush.to) && at <= Math.max(brush.from, brush.to) ? "brushed" : null },
          svg("title", {}, `${label}: ${number(size)}`)))));
    } else if (facts.top.length && facts.top[0][1] > 1) {
      place_.append(h("div", { class: "tops" }, ...facts.top.slice(0, 2).map(([label, size]) => h("div", { class: "top", style: `--share:${((100 * size) / facts.rows).toFixed(1)}%`, "data-top": label, title: `${label}: ${number(size)}` }, h("span", {}, label), h("span", { class: "dim" }, `${((100 * size) / facts.rows).toFixed(0)} %`)))));
    } else place_.append(h("div", { class: "dim" }, facts.rows > facts.missing ? `${facts.distinct >= facts.rows - facts.missing ? "all" : `${facts.rows > COUNTED ? "≈ " : ""}${number(facts.distinct)}`} different` : ""));
    if (note) place_.append(h("div", { class: `note dim${sampled ? " exact" : ""}`, title: `${note}, ${whole}` }, note));
    return place_;
  };

  // -- what changes the rows: one at a time, with its progress and Stop
  const change = async (name, given, label) => {
    busy?.abort();
    profiling?.abort();
    const mine = (busy = new AbortController()), bar = h("progress", { max: "1", "aria-label": label });
    const show = setTimeout(() => { work.replaceChildren(h("span", {}, `${label}…`), bar, h("button", { class: "stop danger", onclick: () => mine.abort() }, "Stop")); work.hidden = false; }, 120);
    showError(error, null);
    try { return await link.ask(name, given, { signal: mine.signal, progress: (share) => { bar.value = share; } }); }
    catch (problem) { showError(error, problem); if (problem.stopped && busy === mine) say(`${label}: stopped.`); }
    finally { clearTimeout(show); if (busy === mine) { busy = null; work.hidden = true; paint(); } }
  };
  const sortBy = (place, down) => {
    const { name } = state().columns[places[place].index];
    return change("sort", { order: down === null ? [] : [[name, down]] }, `Sorting by ${name}`).then(() => say(sorted(name) ? `Sorted by ${name}, ${down ? "descending" : "ascending"}.` : "In the original order."));
  };
  const toggleSort = (place) => { const by = sorted(state().columns[places[place].index].name); return sortBy(place, by ? (by[1] ? null : true) : false); };

  // -- the active cell, the rectangle, keys
  const show = (row, column) => {
    const tall = rowHeight(), place = places[column], room = roomX();
    let nextTop = top, nextLeft = left;
    if (row >= 0) { if (row * tall < top) nextTop = row * tall; else if ((row + 1) * tall > top + height()) nextTop = (row + 1) * tall - height(); }
    if (place && !place.pinned) { const x = place.x - pinnedWidth; if (x < left) nextLeft = x; else if (x + place.width > left + room) nextLeft = Math.min(x, x + place.width - room); }
    move(nextTop, nextLeft);
  };
  const goto = (row, column, extend = false) => {
    anchor = extend ? (anchor ?? { ...active }) : null;
    active = { row: clamp(row, extend ? 0 : -1, state().rows - 1), column: clamp(column, 0, Math.max(places.length - 1, 0)) };
    show(active.row, active.column);
  };
  const keys = (event) => {
    if (event.target !== viewport) return;
    const { row, column } = active, far = event.ctrlKey || event.metaKey, page = Math.max(1, Math.floor(height() / rowHeight()) - 1), end = places.length - 1, bottom = state().rows - 1, on = event.shiftKey;
    const moves = { ArrowDown: [far ? bottom : row + 1, column], ArrowUp: [far ? 0 : row - 1, column], ArrowRight: [row, far ? end : column + 1], ArrowLeft: [row, far ? 0 : column - 1], PageDown: [Math.max(row, 0) + page, column], PageUp: [Math.max(row - page, 0), column], Home: [far ? 0 : row, 0], End: [far ? bottom : row, end] };
    const place = places[column];
    if (event.altKey && place && (event.key === "ArrowRight" || event.key === "ArrowLeft")) widen(place, event.key === "ArrowRight" ? 24 : -24);
    else if (moves[event.key]) goto(...moves[event.key], on);
    else if (event.key === "F10" && on || event.key === "ContextMenu") openMenu(column);
    else if (event.key === "Enter" && place) { if (row < 0) toggleSort(column); else openValue(row, place); }
    else if (event.key === "Escape" && anchor) { anchor = null; paint(); }
    else if (far && event.key === "a") { anchor = { row: 0, column: 0 }; active = { row: bottom, column: end }; paint(); }
    else if (far && event.key === "c") copy();
    else return;
    event.preventDefault(); event.stopPropagation();
  };
  viewport.addEventListener("keydown", keys);
  const widen = (place, by) => { view.widths[state().columns[place.index].name] = clamp(place.width + by, NARROW, 1_200); keep(); resize(); };

  const copy = async () => {
    const box = chosen(), columns = places.slice(box.left, box.right + 1).map((each) => each.index);
    const found = await change("copy", { start: Math.max(box.top, 0), stop: box.bottom + 1, columns, heads: box.top < 0 || anchor !== null }, "Copying");
    if (found) { await put(found.text); say(`${number(found.cells)} cells copied.`); }
  };
  const openValue = async (row, place) => {
    const { name, type } = state().columns[place.index], close = () => { side.hidden = true; viewport.focus(); };
    const found = await link.ask("whole", { row, column: place.index, rev: state().rev }).catch((problem) => showError(error, problem));
    if (found === undefined) return;
    const closer = h("button", { onclick: close }, "Close");
    side.replaceChildren(h("div", { class: "bar" }, h("span", { class: "title" }, `${name}, row ${number(row + 1)}`), h("span", { class: "dim" }, type), h("span", { class: "grow" }), h("button", { onclick: () => put(found ?? "") }, "Copy"), closer),
      h("pre", { dir: "auto", tabindex: "0" }, found === null ? "null" : found));
    side.hidden = false;
    side.onkeydown = (event) => { if (event.key === "Escape") close(); };
    closer.focus();
  };

  // -- the menu of a column, and its filter
  let menu = null;
  const closeMenu = (focus = true) => { menu?.remove(); menu = null; if (focus) viewport.focus({ preventScroll: true }); };
  const openMenu = (column) => {
    closeMenu(false);
    const place = places[column];
    if (!place) return;
    const { name, kind } = state().columns[place.index], pinned = view.pinned.includes(name), facts = profiles.get(place.index);
    const pin = () => { view.pinned = pinned ? view.pinned.filter((each) => each !== name) : [...view.pinned, name]; keep(); layout(); goto(active.row, places.findIndex((each) => each.index === place.index)); resize(); };
    const items = [["Sort ascending", () => sortBy(column, false)], ["Sort descending", () => sortBy(column, true)], sorted(name) && ["Remove the sort", () => sortBy(column, null)], ["Filter…", () => openFilter(place, kind)],
      facts?.top?.length && ["Keep the most frequent value", () => keepTop(place.index, facts.top[0][0])], facts && facts.rows < facts.of && ["Exact profile", () => profile(place.index, true)],
      [pinned ? "Unpin" : "Pin", pin], ["Wider", () => widen(place, 48)], ["Narrower", () => widen(place, -48)], ["Copy the name", () => put(name)], ...more(place)].filter(Boolean);
    menu = h("div", { class: "menu", role: "menu", "aria-label": `Column ${name}` }, ...items.map(([label, act]) => h("button", { role: "menuitem", tabindex: "-1", class: "plain", onclick: () => { closeMenu(); act(); } }, label)));
    root.append(menu);
    const box = viewport.getBoundingClientRect(), base = root.getBoundingClientRect(), x = gutter() + (place.pinned ? place.x : place.x - left);
    menu.style.left = `${clamp(x, 4, Math.max(base.width - menu.offsetWidth - 8, 4))}px`;
    menu.style.top = `${box.top - base.top + 30}px`;
    menu.addEventListener("keydown", (event) => {
      const all = [...menu.children], at = all.indexOf(root.ownerDocument.activeElement);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
      if (to !== undefined) all[(to + all.length) % all.length].focus();
      else if (event.key === "Escape" || event.key === "Tab") closeMenu();
      else return;
      event.preventDefault();
    });
    menu.addEventListener("focusout", (event) => { if (menu && !menu.contains(event.relatedTarget) && event.relatedTarget) closeMenu(false); });
    menu.firstChild.focus();
  };
  const filterBy = (given, label) => change("filter", { add: given, rev: state().rev }, `Filtering by ${label}`).then(() => say(`${number(state().rows)} rows.`));
  const keepTop = (index, value) => filterBy({ column: index, op: "=", value }, state().columns[index].name);
  const openFilter = (place, kind) => {
    const { name } = state().columns[place.index], ops = kind === "text" ? ["contains", "=", "≠", "is missing", "is there"] : kind === "bool" ? ["=", "is missing", "is there"] : ["=", "≠", "<", "≤", ">", "≥", "between", "is missing", "is there"];
    const op = h("select", { "aria-label": "Comparison" }, ...ops.map((each) => h("option", {}, each))), value = h("input", { type: "text", "aria-label": "Value", size: "16" }), to = h("input", { type: "text", "aria-label": "Upper value", size: "16", hidden: true });
    const apply = () => { closeMenu(); filterBy({ column: place.index, op: op.value, value: value.value, to: to.value }, name); };
    op.addEventListener("change", () => { value.hidden = op.value.startsWith("is "); to.hidden = op.value !== "between"; });
    closeMenu(false);
    menu = h("form", { class: "menu form", "aria-label": `Filter ${name}`, onsubmit: (event) => { event.preventDefault(); apply(); } }, h("b", {}, name), op, value, to, h("button", { type: "submit", class: "primary" }, "Filter"), h("button", { type: "button", onclick: () => closeMenu() }, "Cancel"));
    root.append(menu);
    menu.style.left = "8px"; menu.style.top = `${viewport.offsetTop + 30}px`;
    menu.addEventListener("keydown", (event) => { if (event.key === "Escape") closeMenu(); });
    op.focus();
  };
  const showChips = () => {
    const { conditions } = state();
    chips.hidden = !conditions.length;
    chips.replaceChildren(h("span", { class: "dim" }, "Filters:"), ...conditions.map((text, at) => h("button", { class: "chip mono", "aria-label": `Remove the filter ${text}`, onclick: () => change("filter", { drop: at }, "Filtering").then(() => (chips.querySelector("button") ?? viewport).focus()) }, text, h("span", { "aria-hidden": "true" }, " ✕"))),
      ...(conditions.length > 1 ? [h("button", { class: "plain", onclick: () => change("filter", { clear: true }, "Filtering").then(() => viewport.focus()) }, "Remove all")] : []));
  };

  // -- the mouse
  const hit = (event) => { const box = viewport.getBoundingClientRect(), x = event.clientX - box.left - gutter(), y = event.clientY - box.top;
    const place = places.find((each) => (each.pinned ? x >= each.x && x < each.x + each.width : x >= pinnedWidth && x + left >= each.x && x + left < each.x + each.width));
    return { place, row: y < HEAD ? -1 : Math.floor((top + y - HEAD) / rowHeight()) }; };
  layer.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const { place, row } = hit(event);
    if (!place || row >= state().rows) return;
    viewport.focus({ preventScroll: true });
    event.preventDefault();
    if (event.target.closest(".grip")) return drag(event, (by) => { view.widths[state().columns[place.index].name] = clamp(place.width + by, NARROW, 1_200); resize(); }, keep);
    const bars = event.target.closest(".bars");
    if (bars) return startBrush(event, place, bars);
    if (event.target.closest(".exact")) return profile(place.index, true);
    const value = event.target.closest("[data-top]");
    if (value) return keepTop(place.index, value.dataset.top);
    goto(row, place.place, event.shiftKey && row >= 0);
    if (row < 0) return toggleSort(place.place);
    drag(event, (_x, _y, moved) => { const over = hit(moved); if (over.place && over.row >= 0) goto(over.row, over.place.place, true); }, () => {});
  });
  layer.addEventListener("dblclick", (event) => { const { place, row } = hit(event); if (place && row >= 0 && row < state().rows) openValue(row, place); });
  layer.addEventListener("contextmenu", (event) => { const { place, row } = hit(event); if (place) { event.preventDefault(); goto(row, place.place); openMenu(place.place); } });
  const drag = (event, moving, ended) => {
    const from = [event.clientX, event.clientY], end = new AbortController();
    layer.setPointerCapture(event.pointerId);
    layer.addEventListener("pointermove", (moved) => { if (Math.hypot(moved.clientX - from[0], moved.clientY - from[1]) > 3) moving(moved.clientX - from[0], moved.clientY - from[1], moved); }, { signal: end.signal });
    for (const name of ["pointerup", "pointercancel"]) layer.addEventListener(name, (up) => { end.abort(); ended(up); }, { signal: end.signal });
  };
  const startBrush = (event, place, bars) => {
    const box = bars.getBoundingClientRect(), facts = profiles.get(place.index), at = (x) => clamp(Math.floor(((x - box.left) / box.width) * facts.bins.length), 0, facts.bins.length - 1);
    brush = { index: place.index, from: at(event.clientX), to: at(event.clientX) };
    paint();
    drag(event, (_x, _y, moved) => { brush.to = at(moved.clientX); paint(); }, () => {
      const low = Math.min(brush.from, brush.to), high = Math.max(brush.from, brush.to);
      brush = null;
      filterBy({ column: place.index, op: "between", low: facts.bins[low][0], high: facts.bins[high][1], last: high === facts.bins.length - 1 }, state().columns[place.index].name);
    });
  };

  // -- the bar
  goTo.addEventListener("keydown", (event) => {
    const row = Number(goTo.value.trim().replace(/(?<=\d)[\s,_'’](?=\d)/g, "") || NaN), isRow = Number.isInteger(row) && row > 0;
    if (event.key !== "Enter") return goTo.removeAttribute("aria-invalid");
    goTo.setAttribute("aria-invalid", String(!isRow));
    if (!isRow) return say(`${goTo.value} is no row: rows are numbered from 1 to ${number(state().rows)}.`);
    goto(row - 1, active.column);
    viewport.focus();
    say(`Row ${number(active.row + 1)} of ${number(state().rows)}.`);
  });
  let found = { text: null, at: -1 };
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const text = find.value.trim().toLowerCase(), hits = places.filter((each) => state().columns[each.index].name.toLowerCase().includes(text));
    if (!text || !hits.length) return say(text ? `No column has ${find.value} in its name.` : "");
    found = { text, at: found.text === text ? (found.at + (event.shiftKey ? -1 : 1) + hits.length) % hits.length : 0 };
    goto(active.row, hits[found.at].place);
    say(`${state().columns[hits[found.at].index].name}: ${found.at + 1} of ${number(hits.length)}.`);
  });

  // -- what comes from the kernel
  const resize = () => {
    layout();
    const rows = state().rows, fits = Math.min(rows, 12) * rowHeight() + HEAD + (gutter() + allWidth > viewport.clientWidth ? 16 : 0);
    viewport.style.height = `${clamp(fits, HEAD + 60, 400)}px`;
    sizer.style.height = `${HEAD + longest()}px`; sizer.style.width = `${gutter() + allWidth}px`;
    layer.style.width = `${viewport.clientWidth}px`; layer.style.height = `${viewport.clientHeight}px`;
    move(top, left);
  };
  let rev = state().rev;
  // the first page comes along, and is seen without a question
  const begin = ({ first, rows }) => {
    if (!first) return;
    const most = Math.min(first.rows.length, rows);
    for (let row = 0; row < most; row++) cache.set(row, Object.fromEntries(first.columns.map((index, place) => [index, first.rows[row][place]])));
    fit(first.rows, first.columns.map((index) => ({ index })));
  };
  let before = state();
  const update = () => {
    const now = state(), isSame = (...names) => names.every((name) => JSON.stringify(now[name]) === JSON.stringify(before[name]));
    if (now.rev !== rev) {
      rev = now.rev; finishing = false; cache.clear(); profiling?.abort();
      // the same rows in another order have the same profiles
      if (isSame("order") || !isSame("source", "rows", "columns", "conditions")) profiles.clear();
      before = now; top = 0; active = { row: active.row < 0 ? -1 : 0, column: active.column }; anchor = null;
    }
    begin(now);
    title.textContent = model.get("title");
    layout();
    const all = now.of !== undefined && now.of !== now.rows ? ` of ${number(now.of)}` : "";
    count.textContent = `${now.whole ? number(now.rows) + all : `first ${number(now.rows)}`} ${now.rows === 1 && !all ? "row" : "rows"} × ${number(places.length)} ${places.length === 1 ? "column" : "columns"}${now.note ? ` · ${now.note}` : ""}`;
    viewport.setAttribute("aria-rowcount", now.whole ? now.rows + 1 : -1);
    showChips(); resize();
  };
  model.on("change:state", update);
  const watcher = new ResizeObserver(() => resize());
  watcher.observe(root);
  signal?.addEventListener("abort", () => { watcher.disconnect(); model.off("change:state", update); busy?.abort(); profiling?.abort(); });
  update();
  return { bar, change, focus: () => viewport.focus(), facts: factsOf, say, error };
};

/** Put text on the clipboard; pages without https may not, and take the old way. */
const put = async (text) => {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = h("textarea", { "aria-hidden": "true", style: "position:fixed;opacity:0" }), before = document.activeElement;
    area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
    before?.focus({ preventScroll: true });
  }
};
