"""The JavaScript that all widgets share, alone on a page, with a model that keeps what it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nbtools.widgets.live.sources import module_text
from tests.browser.conftest import end_children

pytestmark = [pytest.mark.races, pytest.mark.slow]

NAMES = "h, isDark, mount, showError, insertCell, onChange, fieldsForm, approvalPanel, diffOf"
_SETUP = """async (text) => {
    const heard = new Map();
    window.sent = [];
    window.traits = { saved_as: "abc" };
    window.model = {
        get: (name) => traits[name], set: (name, value) => { traits[name] = value; }, save_changes: () => {},
        on: (name, run) => heard.set(name, [...(heard.get(name) ?? []), run]),
        off: (name, run) => heard.set(name, heard.get(name).filter((each) => each !== run)),
        send: (message) => sent.push(message),
    };
    window.fire = (name, ...given) => [...(heard.get(name) ?? [])].forEach((each) => each(...given));
    window.ended = new AbortController();
    window.ours = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
}"""


@pytest.fixture
def script(browser: Any) -> Iterator[Any]:
    """Return a function that runs JavaScript with our functions in reach, and gives back what it returns."""
    page = browser.new_page()
    page.set_content("<body data-jp-theme-light='true'><div id='place'></div></body>")
    page.evaluate(_SETUP, f"{module_text('approval_card')}\nexport {{ {NAMES} }};")
    yield lambda code, given=None: page.evaluate(
        f"async (given) => {{ const {{ {NAMES} }} = ours, place = document.getElementById('place'); {code} }}", given
    )
    page.close()


def test_an_error_is_shown_as_text_with_its_hint_and_goes_away(script: Any) -> None:
    told = script(
        """const shown = [];
        const errors = [{ message: "<b>x</b>", hint: "try" }, { message: "m", stopped: true }, { message: "n" }, null];
        for (const error of errors) {
            showError(place, error); shown.push([place.textContent, place.querySelectorAll("b").length]);
        }
        return shown;"""
    )
    assert told == [["<b>x</b>→ try", 0], ["", 0], ["n", 0], ["", 0]]


def test_keys_stay_in_a_widget_and_commands_of_the_browser_leave_it(script: Any) -> None:
    told = script(
        """const root = mount(place, model, "Label", ended.signal), field = h("input"), outside = [];
        root.append(field);
        document.body.addEventListener("keydown", (event) => outside.push(event.key));
        for (const [key, ctrlKey] of [["a", false], ["Enter", false], ["s", true], ["c", true]])
            field.dispatchEvent(new KeyboardEvent("keydown", { key, ctrlKey, bubbles: true }));
        return [outside, field.hasAttribute("data-lm-suppress-shortcuts"), root.getAttribute("aria-label")];"""
    )
    # Ctrl+C is the widget's own: Notebook 7 is told so by the attribute.
    assert told == [["s", "c"], True, "Label"]


def test_the_theme_is_followed_and_a_lost_kernel_is_told_once(script: Any) -> None:
    told = script(
        """const found = [], root = mount(place, model, "x", ended.signal);
        place.insertAdjacentHTML("afterend", "<div data-nbt-saved='abc'>saved</div>");  // it comes behind the view
        const saved = document.querySelector("[data-nbt-saved]");
        found.push(root.dataset.theme, getComputedStyle(saved).display);
        document.body.dataset.jpThemeLight = "false";
        await new Promise((done) => requestAnimationFrame(done));
        found.push(root.dataset.theme);
        fire("comm_live_update"); fire("comm_live_update");
        found.push(root.querySelectorAll(".lost").length, root.querySelector(".lost button").textContent);
        ended.abort(); fire("comm_live_update");
        found.push(root.querySelectorAll(".lost").length, getComputedStyle(saved).display);
        return found;"""
    )
    assert told == ["light", "none", "dark", 1, "Run all above, then it", 1, "block"]


def test_a_cell_that_the_extension_inserts_is_not_shown(script: Any) -> None:
    told = script(
        """const root = mount(place, model, "x", ended.signal), taken = [];
        document.addEventListener("nbtools", (event) => { taken.push(event.detail); event.preventDefault(); });
        insertCell(root, "print('<b>')");
        return [taken, root.querySelectorAll("button").length];"""
    )
    assert told == [["print('<b>')"], 0]


def test_where_no_cell_can_be_inserted_its_text_is_shown_without_magics_in_marimo(script: Any) -> None:
    told = script(
        """const root = mount(place, model, "x", ended.signal), found = [];
        const shown = () => [...root.querySelectorAll(".paste pre")].map((each) => each.textContent);
        insertCell(root, "%sql select 1", "wb.sql('select 1')");
        found.push(shown());
        customElements.define("marimo-anywidget", class extends HTMLElement {});
        insertCell(root, "%sql select 1", "wb.sql('select 1')");
        found.push(shown());
        insertCell(root, "import nbtools\\n\\nnbtools.workbench()");
        found.push(shown());
        root.querySelector(".paste button").click();
        return [...found, shown()];"""
    )
    assert told == [["%sql select 1"], ["wb.sql('select 1')"], ["nbtools.workbench()"], []]


def test_changes_of_several_traits_are_heard_by_one_name_each(script: Any) -> None:
    told = script(
        """let count = 0;
        onChange(model, ["a", "b"], () => { count += 1; }, ended.signal);
        fire("change:a"); fire("change:b"); ended.abort(); fire("change:a");
        return count;"""
    )
    assert told == 2


def test_a_form_knows_what_was_edited_and_shows_what_is_wrong_at_its_field(script: Any) -> None:
    told = script(
        """const edits = [], edit = (all) => edits.push({ ...all });
        const form = fieldsForm(given, { draft: { n: "2" }, edit });
        place.append(form.element);
        const [n, many, flag] = form.element.querySelectorAll("input, textarea");
        const type = (control, value) => { control.value = value; control.dispatchEvent(new Event("input")); };
        type(many, "x"); type(n, "1");
        flag.checked = true; flag.dispatchEvent(new Event("change"));
        form.showProblems({ n: "no number", "": "in all" }, true);
        return [edits, form.edited(), form.typed(), document.activeElement.name,
            n.getAttribute("aria-invalid"), flag.getAttribute("aria-invalid"),
            [...form.element.querySelectorAll(".wrong")].map((each) => each.textContent), many.tagName];""",
        [
            {"name": "n", "kind": "number", "value": "1", "default": "1", "help": "", "required": False, "choices": []},
            {"name": "t", "kind": "lines", "value": "", "default": "", "help": "", "required": True, "choices": []},
            {"name": "f", "kind": "flag", "value": False, "default": "", "help": "", "required": False, "choices": []},
        ],
    )
    assert told == [
        [{"n": "2", "t": "x"}, {"t": "x"}, {"t": "x", "f": True}],
        {"t": "x", "f": True},
        {"t": "x", "f": True},
        "n",
        "true",
        "false",
        ["in all", "no number", "", ""],
        "TEXTAREA",
    ]


def test_a_card_says_on_each_button_what_a_yes_covers_and_sends_what_was_changed(script: Any) -> None:
    field = {"name": "path", "kind": "text", "value": "a", "default": "", "help": "", "required": True, "choices": []}
    asked = {"tool": "file_write", "consequence": "c", "caller": "model", "reason": "r", "fields": [field], "parts": []}
    told = script(
        """const decided = [], labels = () => [...place.querySelectorAll("button")].map((each) => each.textContent);
        const parts = { problems: {}, parts: [{ title: "changes", text: "@@\\n-old\\n+new" }] };
        const decide = async (reply) => { decided.push(reply); return { problems: {} }; };
        place.append(approvalPanel(given, { check: async () => parts, decide }));
        const before = labels(), input = place.querySelector("input[name=path]");
        input.value = "b"; input.dispatchEvent(new Event("input"));
        const after = labels();
        while (!place.querySelector(".is-added")) await new Promise((done) => setTimeout(done, 10));
        place.querySelector("[data-answer=once]").click();
        await new Promise((done) => setTimeout(done));
        const lines = [...place.querySelectorAll(".diff span")].map((each) => each.className);
        return [before, after[0], after[2], decided, lines,
            [...place.querySelectorAll("button")].every((each) => each.disabled)];""",
        asked,
    )
    assert told == [
        ["Allow once", "Allow file_write all session", "Allow exactly this all session", "Later", "No"],
        "Allow once with these changes",
        "Allow exactly this, as changed, all session",
        [{"answer": "once", "edited": {"path": "b"}, "reason": ""}],
        ["dim", "is-removed", "is-added"],
        True,
    ]


def test_a_page_that_waits_for_ever_fails_once_its_browser_is_ended(browser: Any) -> None:
    page = browser.new_page()
    ending = threading.Timer(0.5, end_children)
    ending.start()
    with pytest.raises(Exception, match="closed"):
        page.evaluate("() => new Promise(() => {})")
    ending.join()


def test_another_browser_takes_the_place_of_one_that_was_ended(browser: Any) -> None:
    page = browser.new_page()
    assert page.evaluate("1 + 1") == 2
    page.close()
