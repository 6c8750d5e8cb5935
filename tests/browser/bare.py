"""A bare page with one widget: its own JavaScript, a model that is a few lines, and the real Python side behind it.

No server and no kernel run, so a test takes a second. What the widget sends while it answers comes with the answer.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST_S = 60  # that a page may wait for a change of itself
# The place takes the focus of a press, as the cells of a notebook do.
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>widget</title><style>
%(variables)s body { margin: 8px; background: var(--jp-layout-color1); } %(css)s</style></head>
<body data-jp-theme-light="%(light)s"><main id="place" tabindex="-1"></main></body></html>"""
# The variables of JupyterLab's two themes that the tokens name.
_THEMES = {
    "light": ":root { --jp-layout-color1: #ffffff; --jp-content-font-color0: rgba(0,0,0,1); }",
    "dark": ":root { --jp-layout-color1: #111111; --jp-content-font-color0: rgba(255,255,255,1); }",
}
_MODEL = """async ([text, traits]) => {
    const heard = new Map(), values = traits;
    const fire = (name, ...given) => [...(heard.get(name) ?? [])].forEach((each) => each(...given));
    window.model = {
        get: (name) => values[name],
        set: (name, value) => { values[name] = value; fire(`change:${name}`); },
        save_changes: () => {},
        on: (name, run) => heard.set(name, [...(heard.get(name) ?? []), run]), // one name, as marimo has it
        off: (name, run) => heard.set(name, (heard.get(name) ?? []).filter((each) => each !== run)),
        send: async (message) => {
            const { messages, traits } = await window.toKernel(message);
            for (const [name, value] of Object.entries(traits)) window.model.set(name, value);
            messages.forEach((each) => fire("msg:custom", each));
        },
        fire,
    };
    const module = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    const ended = new AbortController();
    window.endView = () => ended.abort();
    module.default.render({ model: window.model, el: document.getElementById("place"), signal: ended.signal });
}"""


class Bridge:
    """Hands messages of the page to the widget, and returns what it sent by the time the reply was there."""

    def __init__(self, widget: Any, *traits: str) -> None:
        self.widget, self._traits = widget, traits
        self.asked: list[str] = []
        self._sent: list[dict[str, Any]] = []
        self._told = self.traits()
        self._came = threading.Condition()
        widget.send = self._keep

    def _keep(self, content: dict[str, Any], buffers: Any = None) -> None:
        with self._came:
            self._sent.append(content)
            self._came.notify_all()

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        self.widget._handle_custom_msg(message, [])
        with self._came:
            if message["t"] == "ask":
                self.asked.append(message["name"])
                done = lambda: any(each["t"] == "reply" and each["id"] == message["id"] for each in self._sent)  # noqa: E731
                assert self._came.wait_for(done, 60), message
            messages, self._sent = self._sent, []
        now = self.traits()
        changed = {name: value for name, value in now.items() if value is not self._told.get(name)}
        self._told = now
        return {"messages": messages, "traits": changed}

    def traits(self) -> dict[str, Any]:
        return {name: getattr(self.widget, name) for name in self._traits}


def open_bare(page: Any, widget: Any, *traits: str, theme: str = "light", width: int = 1280) -> Bridge:
    """Show a widget on a page."""
    bridge = Bridge(widget, "title", *traits)
    page.set_viewport_size({"width": width, "height": 760})
    page.emulate_media(color_scheme=theme)
    page.expose_function("toKernel", bridge)
    page.set_content(
        _PAGE % {"css": widget._css, "variables": _THEMES[theme], "light": "true" if theme == "light" else "false"}
    )
    page.evaluate(_MODEL, [widget._esm, {**bridge.traits(), **{n: getattr(widget, n) for n in traits}}])
    return bridge


def press(target: Any, way: str) -> None:
    """Press a button or the like, by the mouse alone or by keys alone."""
    if way == "mouse":
        target.click()
    else:
        target.press("Enter")


def axe_findings(page: Any) -> list[str]:
    """Return what axe-core finds wrong inside the widgets, one line each."""
    found = importlib.util.find_spec("axe_playwright_python")
    assert found is not None, "axe-playwright-python is missing"
    assert found.origin is not None
    script = next(Path(found.origin).parent.rglob("axe*.js"))
    page.evaluate(script.read_text(encoding="utf-8") + "; null")
    told = page.evaluate("axe.run('.nbt', { resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes']][:3]}"
        for each in told["violations"]
    ]


def comes_true(page: Any, check: Callable[[], None]) -> None:
    """Try assertions about a page until they hold, since what they are about may come later."""
    end = time.monotonic() + LONGEST_S
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > end:
                raise
        page.wait_for_timeout(20)


def becomes(page: Any, read: Callable[[], Any], expected: Any) -> None:
    """Wait until what is read is what is expected; the difference is told where it does not come."""

    def check() -> None:
        assert read() == expected

    comes_true(page, check)


def settled(page: Any) -> None:
    """Wait until the grid shows what it is asked for."""
    page.wait_for_function("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.wait_for_function("() => !document.querySelector('.body .waits')")


def milliseconds(page: Any, act: str, done: str) -> float:
    """Return how long it takes from an act to a visible change, both as JavaScript, in the page itself."""
    took = page.evaluate(
        f"""([seconds]) => new Promise((finish, fail) => {{
            const begun = performance.now();
            const took = () => performance.now() - begun;
            {act};
            const look = () => {{
                if ({done}) finish(took());
                else if (took() > 1000 * seconds) fail(new Error("it is not seen"));
                else requestAnimationFrame(look);
            }};
            requestAnimationFrame(look);
        }})""",
        [LONGEST_S],
    )
    return float(took)
