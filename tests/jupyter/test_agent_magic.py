"""``%%agent`` and ``%agent``: a scripted model at work in a cell, from the prompt to the last line."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

TURNS = """
turns:
  - when: {prompt: count}
    say: "I count.\\n"
    calls: [{tool: calculator, arguments: {expression: 6*7}}]
  - when: {tool: calculator, contains: "42"}
    say: There are 42.
  - when: {prompt: again}
    say: Still 42.
"""
CHANGES = """
turns:
  - calls: [{tool: file_write, arguments: {path: out.txt, content: mine}}]
  - when: {tool: file_write, ok: true}
    say: Written.
  - say: Not written.
"""


@pytest.fixture
def turns(folder):
    (folder / "turns.yaml").write_text(TURNS)
    (folder / "changes.yaml").write_text(CHANGES)
    (folder / "nbtools.toml").write_text('[policy]\nfile_write = "ask"\n')
    return folder


def test_a_cell_shows_text_calls_and_what_was_used(turns, notebook):
    done = notebook.run("answer << %%agent --script turns.yaml\nPlease count.")
    run = notebook["answer"]
    assert (run.status, run.text) == ("done", "There are 42.")
    told = [data["text/plain"] for data in done.displayed]
    assert any(line.startswith('✓ calculator(expression="6*7")') and "scripted (no LLM)" in line for line in told)
    assert "<details>" in done.displayed[0]["text/html"]
    assert "I count.\n" in done.stdout
    assert "There are 42." in done.stdout
    assert "2 steps · 1 calls" in done.stdout
    # The first line, that of the call, and the last one.
    assert [line for line in done.stdout.splitlines() if "scripted (no LLM)" not in line] == [
        *("I count.", "There are 42.")
    ]


def test_the_next_cell_goes_on_and_new_starts_afresh(turns, notebook):
    first = notebook.run("%%agent --script turns.yaml\nPlease count.").value.run
    second = notebook.run("%%agent --script turns.yaml\nAnd again?").value.run
    fresh = notebook.run("%%agent --script turns.yaml --new\nAnd again?").value.run
    assert [run.text for run in (second, fresh)] == ["Still 42.", "Still 42."]
    assert second.conversation_id == first.conversation_id != fresh.conversation_id
    notebook.run(f"%agent branch {first.run_id[:8]}")
    other = notebook.run("%%agent --script turns.yaml\nAnd again?").value.run
    assert other.conversation_id not in {first.conversation_id, fresh.conversation_id}


def test_runs_are_listed_and_shown(turns, notebook):
    run = notebook.run("%%agent --script turns.yaml\nPlease count.").value.run
    listed = str(notebook.run("%agent").value)
    assert run.run_id[:8] in listed
    assert "scripted (no LLM)" in listed
    shown = str(notebook.run(f"%agent show {run.run_id[:8]}").value)
    assert 'calculator(expression="6*7")' in shown
    assert "Please count." in shown
    assert "scripted (no LLM)" in shown


def test_budgets_and_tools_hold_the_run(turns, notebook):
    run = notebook.run("%%agent --script turns.yaml --max-steps 1\nPlease count.").value.run
    assert (run.status, run.usage["steps"]) == ("budget", 1)
    again = notebook.run(f"%agent resume {run.run_id[:8]} --max-steps 5").value.run
    assert (again.status, again.text) == ("done", "There are 42.")
    kept = notebook.run("%%agent --script turns.yaml --new --tools sql_query memory_*\nPlease count.").value.run
    assert [call.result.error.code for call in kept.calls] == ["TOOL_NOT_FOUND"]


def test_a_person_approves_with_changes(turns, notebook, monkeypatch):
    said = iter(["e", "", "yours", "", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(said, ""))
    done = notebook.run("%%agent --script changes.yaml\nWrite!")
    assert (turns / "out.txt").read_text() == "yours"
    assert "file_write" in done.stderr
    assert "approved with changes by terminal" in done.stdout
    assert 'content="yours"' in done.displayed[0]["text/plain"]


def test_later_ends_the_cell_and_is_answered_by_a_line(turns, notebook, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: "l")
    done = notebook.run("%%agent --script changes.yaml\nWrite!")
    assert done.value.run.status == "pending"
    assert "%agent resume" in str(done.value)
    assert not (turns / "out.txt").exists()
    refused = notebook.run("%%agent --script changes.yaml\nAnd?")
    assert "is pending" in "\n".join(refused.lines)
    ended = notebook.run("%agent resume --set content=theirs").value.run
    assert ended.text == "Written."
    assert (turns / "out.txt").read_text() == "theirs"


def test_what_waits_can_be_refused_or_cancelled(turns, notebook, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: "l")
    notebook.run("%%agent --script changes.yaml\nWrite!")
    assert notebook.run("%agent resume --no 'not now'").value.run.text == "Not written."
    waits = notebook.run("%%agent --script changes.yaml --new\nWrite!").value.run
    assert "is cancelled" in notebook.run(f"%agent cancel {waits.run_id}").stdout
    assert notebook.run("%%agent --script turns.yaml\nAnd again?").value.run.text == "Still 42."
    assert not (turns / "out.txt").exists()


def test_nobody_is_asked_where_the_line_says_so(turns, notebook):
    assert notebook.run("%%agent --script changes.yaml --approve never\nWrite!").value.run.text == "Not written."
    assert notebook.run("%%agent --script changes.yaml --new --approve auto\nWrite!").value.run.text == "Written."


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%%agent --script turns.yaml\n  ", "the prompt is empty"),
        ("%%agent --script nowhere.yaml\nGo", "nowhere.yaml"),
        ("%%agent\nGo", "model"),
        ("%%agent --script turns.yaml --max-step 1\nGo", "Did you mean --max-steps"),
        ("%agent show nothing", "there is no run 'nothing'"),
        ("%agent resume", "this notebook has no run yet"),
        ("%agent shw x", "Did you mean"),
    ],
)
def test_what_is_wrong_is_told(turns, notebook, line, words):
    assert words in "\n".join(notebook.run(line).lines)


def test_models_and_runs_are_completed(turns, notebook):
    run = notebook.run("%%agent --script turns.yaml\nPlease count.").value.run
    assert "claude" in notebook.complete("%%agent --model cl")
    assert run.run_id[:8] in notebook.complete(f"%agent show {run.run_id[:2]}")
    assert "--script" in notebook.complete("%%agent --sc")


def test_what_the_model_was_sent_can_be_read_whole(turns, notebook):
    run = notebook.run("%%agent --script turns.yaml --share schema\nPlease count.").value.run
    sent = str(notebook.run(f"%agent show {run.run_id} --sent").value)
    assert "— user-prompt\nPlease count.\n— tool-return of calculator\n42" in sent
    assert "you see the shape" in sent


def test_undo_brings_a_file_back(turns, notebook):
    (turns / "out.txt").write_text("before")
    run = notebook.run("%%agent --script changes.yaml --approve auto\nWrite!").value.run
    assert (turns / "out.txt").read_text() == "mine"
    assert "taken back" in str(notebook.run(f"%agent undo {run.run_id[:8]}").value)
    assert (turns / "out.txt").read_text() == "before"


@pytest.mark.slow
def test_an_exported_run_runs_by_itself_and_gives_the_same(turns, notebook, monkeypatch):
    (turns / "both.yaml").write_text(TURNS.split("  - when: {tool", maxsplit=1)[0] + CHANGES.split("turns:\n")[1])
    said = iter(["l", "y"])
    monkeypatch.setattr("builtins.input", lambda _: next(said))
    notebook.run("%%agent --script both.yaml\nPlease count.")
    run = notebook.run("%agent resume --set content=theirs").value.run
    assert "makes 2 calls again" in notebook.run(f"%agent export {run.run_id[:8]} proof.ipynb").stdout
    (turns / "out.txt").unlink()
    (turns / "nbtools.toml").unlink()
    book = nbformat.read(turns / "proof.ipynb", as_version=4)
    NotebookClient(book, timeout=120, resources={"metadata": {"path": str(turns)}}).execute()
    assert book.cells[-1]["outputs"][-1]["data"]["text/plain"] == "'reproduced 2 of 2'"
    assert (turns / "out.txt").read_text() == "theirs"
    assert "approved with changes" in str(book.cells)


SEEN = "turns:\n  - say: I see.\n"


def test_names_of_the_notebook_are_described_as_far_as_the_level_allows(turns, notebook):
    (turns / "see.yaml").write_text(SEEN)
    notebook.run(
        "import pandas as pd\nbirds = pd.DataFrame({'name': [f'row-{n}-' for n in range(9)]})\nplain = 'secret'"
    )
    notebook.run("raise ValueError('secret')")
    sent = {}
    for level in ("schema", "sample:2", "values"):
        cell = f"%%agent --script see.yaml --new --share {level}\nWhat is @birds, @plain and @error? Ask a@b.org."
        run = notebook.run(cell).value.run
        sent[level] = str(notebook.run(f"%agent show {run.run_id} --sent").value)
    assert "9 rows with the columns name: " in sent["schema"]
    assert "a ValueError" in sent["schema"]
    assert not any(value in sent["schema"] for value in ("row-", "secret"))
    assert "row-1-" in sent["sample:2"]
    assert "row-2-" not in sent["sample:2"]
    assert all(value in sent["values"] for value in ("row-8-", "ValueError: secret"))


def test_a_name_that_is_not_there_is_told(turns, notebook):
    notebook.run("birds = 1")
    assert "Did you mean 'birds'" in "\n".join(notebook.run("%%agent --script turns.yaml\nCount @brds.").lines)
