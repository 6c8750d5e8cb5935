"""The report of a run: what it has, that it loads nothing, and that no secret is in it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from nbtools.errors import FileMissing

HEAD = "version: 1\nname: w\n"


class Page(HTMLParser):
    """The elements and the text of a page; every address that it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in {"src", "href"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def page(run) -> Page:
    return Page((run.folder / "report.html").read_text(encoding="utf-8"))


@pytest.mark.processes
def test_a_run_leaves_a_report_with_all_that_is_known(wb, folder) -> None:
    (folder / "inner.yaml").write_text(
        "version: 1\nname: inner\ninputs: {n: {type: integer}}\n"
        "nodes:\n  - {id: twice, code: \"inputs['n'] * 2\"}\noutputs: {n: '${nodes.twice.data}'}\n"
    )
    (folder / "outer.yaml").write_text(
        """version: 1
name: outer
description: Draw and count
inputs: {title: {type: string, default: <Fish & chips>}}
nodes:
  - id: draw
    description: One line
    code: |
      import matplotlib.pyplot as plt
      plt.plot([1, 2])
      plt.show()
      open("left.txt", "w").write(inputs["title"])
  - {id: again, tool: fail_until, args: {path: t, times: 1}, retry: {attempts: 2, backoff_s: 0.01}}
  - {id: each, workflow: inner.yaml, for_each: [3, 4], args: {n: "${item}"}}
  - {id: broken, tool: fail_until, args: {path: u, times: 9}, on_error: continue}
  - {id: left, tool: look, args: {value: 1}, when: "${nodes.each.data[0].n | default(false)}", needs: [broken]}
outputs: {all: "${nodes.each.data}"}
"""
    )
    run = wb.workflows.run("outer.yaml").raise_for_error()
    found = page(run)
    assert "script" not in found.tags
    assert {address.split(":")[0].split("/")[0] for address in found.addresses} == {"data", "artifacts"}
    assert (run.folder / next(a for a in found.addresses if a.endswith("left.txt"))).read_text() == "<Fish & chips>"
    for words in ("Draw and count", "<Fish & chips>", "never ran", "2 attempts", "EXECUTION_FAILED: attempt 1 fails"):
        assert words in found.text or words.partition(": ")[2] in found.text
    assert "each[1]" in found.text
    assert "ok 2/2" in found.text
    assert 'inner.yaml", for_each' not in found.text
    assert "- {id: each, workflow: inner.yaml" in found.text, "the file as it was"
    assert "code: \"inputs['n'] * 2\"" in found.text, "the file of the run inside"
    assert found.tags.count("img") == 1


def test_a_report_tells_what_was_reused_and_what_is_different_now(wb, folder) -> None:
    (folder / "w.yaml").write_text(HEAD + "nodes:\n  - {id: a, tool: look, args: {value: 7}}\n")
    first = wb.workflows.run("w.yaml").raise_for_error()
    again = wb.workflows.run("w.yaml", cached=True).raise_for_error()
    assert "reused · " in page(again).text
    assert f"reused from {first.run_id}" in page(again).text
    (folder / "w.yaml").unlink()
    assert "gone since the run began" not in page(again).text
    assert wb.workflows.report(again.run_id) == again.folder / "report.html"
    assert "w.yaml is gone since the run began" in page(again).text
    with pytest.raises(FileMissing):
        wb.workflows.report("nothing")


def test_a_waiting_run_has_a_report_with_the_command_that_answers(wb) -> None:
    run = wb.workflows.run(HEAD + "nodes:\n  - {id: q, ask: {approve: Go?}}\n")
    assert f"nbtools runs answer {run.run_id} q yes" in page(run).text
    wb.workflows.answer(run.run_id, "q", "yes", by="me")
    wb.workflows.resume(run.run_id).raise_for_error()
    assert "answered true by me" in page(run).text
    assert "nbtools runs answer" not in page(run).text


def test_no_secret_is_in_a_report(wb, folder, monkeypatch) -> None:
    monkeypatch.setenv("PLAIN_VALUE", "quartz-owl-77")
    monkeypatch.setenv("SERVICE_API_KEY", "zq8Xk2LmN04vTtR9pWc1")
    (folder / "inner.yaml").write_text(
        'version: 1\nname: inner\nnodes:\n  - {id: a, tool: look, args: {value: "${env.PLAIN_VALUE}"}}\n'
    )
    (folder / "w.yaml").write_text(
        HEAD
        + """
inputs: {said: {type: string}, password: {type: string}}
nodes:
  - {id: a, tool: look, args: {value: "${env.PLAIN_VALUE} and ${inputs.said}"}}
  - {id: b, workflow: inner.yaml}
  - {id: c, code: "raise ValueError(inputs['said'])", on_error: continue}
outputs: {a: "${nodes.a.data}"}
"""
    )
    given = {"said": "quartz-owl-77 zq8Xk2LmN04vTtR9pWc1", "password": "hunter2hunter2"}
    run = wb.workflows.run("w.yaml", given).raise_for_error()
    text = (run.folder / "report.html").read_text()
    for secret in ("quartz-owl", "zq8Xk2LmN04vTtR9pWc1", "hunter2hunter2"):
        assert secret not in text
    assert "***" in text
    assert "quartz-owl" not in run._repr_html_()


def test_pictures_have_a_bound(wb) -> None:
    run = wb.workflows.run(
        HEAD
        + """
nodes:
  - id: a
    code: |
      import os
      open("large.png", "wb").write(os.urandom(5_000_000))
      open("small.png", "wb").write(os.urandom(5_000))
"""
    ).raise_for_error()
    found = page(run)
    assert found.tags.count("img") == 1
    assert "large.png: 5,000,000 bytes, too large to be shown here" in found.text


def test_texts_of_results_are_no_markup(wb, folder) -> None:
    hostile = "</pre></div><script>alert(1)</script><img src=http://example.com/x>"
    (folder / "w.yaml").write_text(
        HEAD + f"nodes:\n  - {{id: a, tool: look, description: '{hostile}', args: {{value: '{hostile}'}}}}\n"
    )
    run = wb.workflows.run("w.yaml").raise_for_error()
    found = page(run)
    assert "script" not in found.tags
    assert found.addresses == []
    text = (run.folder / "report.html").read_text()
    assert "Content-Security-Policy\" content=\"default-src 'none'" in text
