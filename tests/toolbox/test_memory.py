import json

import pytest

from nbtools.contract.tool import tool_of
from nbtools.memory import MemoryFiles, open_memory
from nbtools.toolbox import memory_files, memory_tools


@pytest.fixture
def notes():
    with open_memory(":memory:", agent_id="a", workflow_id="w") as made:
        yield made


@pytest.fixture
def call(shelf, notes):
    return shelf(*memory_tools.TOOLS, *memory_files.TOOLS, memory=notes, files=MemoryFiles(notes))


def test_a_saved_note_is_read_back_with_the_exact_texts(call, notes):
    saved = call("memory_save", key="goal", value="Find churn.", tags=["plan"])
    assert saved.text == "Memory item 'goal' saved successfully."
    assert call("memory_retrieve", key="goal").text == "Find churn."
    deleted = call("memory_delete", key="goal")
    assert deleted.text == "Memory item 'goal' deleted successfully."
    assert "goal" not in notes


def test_any_json_value_is_kept_and_read_as_text(call):
    value = {"kpi": "churn", "rows": [1, 2.5, None, True], "ü": "é"}
    call("memory_save", key="k", value=value).raise_for_error()
    result = call("memory_retrieve", key="k")
    assert result.data == value
    assert json.loads(result.text) == value
    for plain in (None, False, 0, "", [], 1.5):
        call("memory_save", key="k", value=plain).raise_for_error()
        assert call("memory_retrieve", key="k").data == plain


def test_several_matches_are_an_array_and_one_is_its_value(call):
    call("memory_save", key="b", value=2, tags=["x", "y"])
    call("memory_save", key="a", value={"n": 1}, tags=["x"])
    both = call("memory_retrieve", tags=["x"])
    expected = [{"key": "a", "value": {"n": 1}, "tags": ["x"]}, {"key": "b", "value": 2, "tags": ["x", "y"]}]
    assert both.data == expected
    assert json.loads(both.text) == expected
    assert call("memory_retrieve", tags=["x", "y"]).text == "2"
    assert len(call("memory_retrieve", tags=["y", "x"], match="any").data) == 2
    assert call("memory_retrieve", key="b", tags=["y"]).text == "2"
    assert call("memory_retrieve", key="a", tags=["y", "x"], match="any").data == {"n": 1}


def test_what_is_not_there_is_not_found_and_the_nearest_is_offered(call):
    call("memory_save", key="customers", value=1, tags=["planning"])
    for name, arguments in (
        ("memory_retrieve", {"key": "custommers"}),
        ("memory_retrieve", {"tags": ["planing"]}),
        ("memory_retrieve", {"key": "customers", "tags": ["other"]}),
        ("memory_delete", {"key": "custommers"}),
    ):
        result = call(name, **arguments)
        assert result.error.code == "MEMORY_NOT_FOUND"
        assert result.error.hint
    assert "customers" in call("memory_retrieve", key="custommers").error.hint
    assert "planning" in call("memory_retrieve", tags=["planing"]).error.hint


def test_saving_again_replaces_the_value(call, notes):
    call("memory_save", key="k", value=1)
    assert call.data("memory_save", key="k", value=2)["version"] == 2
    assert notes["k"] == 2
    assert [r.value for r in notes.history("k")] == [1, 2]


def test_scopes_stay_apart(call, notes):
    call("memory_save", key="k", value="workflow's", scope="workflow").raise_for_error()
    call("memory_save", key="k", value="agent's", scope="agent").raise_for_error()
    assert call("memory_retrieve", key="k", scope="workflow").text == "workflow's"
    assert call("memory_retrieve", key="k", scope="agent").text == "agent's"
    assert call.code("memory_save", key="k", value=1, scope="node") == "INVALID_ARGUMENTS"
    assert call.code("memory_save", key="k", value=1, scope="everyone") == "INVALID_ARGUMENTS"


def test_a_note_with_a_time_to_live_knows_when_it_ends(call, notes):
    call("memory_save", key="k", value=1, ttl=3600).raise_for_error()
    assert notes.record("k").expires_at is not None
    for ttl in (0, -1, "soon"):
        assert call.code("memory_save", key="k", value=1, ttl=ttl) == "INVALID_ARGUMENTS"


def test_a_note_keeps_the_tags_and_the_end_that_are_not_given(call, notes):
    call("memory_save", key="k", value=1, tags=["plan"], ttl=3600).raise_for_error()
    first = notes.record("k")
    # A model that must give every argument says null for "not given".
    for not_given in ({}, {"tags": None, "ttl": None}):
        call("memory_save", key="k", value=2, **not_given).raise_for_error()
        assert (notes.record("k").tags, notes.record("k").expires_at) == (("plan",), first.expires_at)
    call("memory_save", key="k", value=3, tags=[], ttl="never").raise_for_error()
    assert (notes.record("k").tags, notes.record("k").expires_at) == ((), None)


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("memory_save", {"key": "", "value": 1}, "INVALID_ARGUMENTS"),
        ("memory_save", {"key": "a\nb", "value": 1}, "INVALID_ARGUMENTS"),
        ("memory_save", {"key": "x" * 2000, "value": 1}, "LIMIT_EXCEEDED"),
        ("memory_save", {"key": "k", "value": "x" * 2_000_000}, "LIMIT_EXCEEDED"),
        ("memory_save", {"key": "k", "value": float("nan")}, "INVALID_ARGUMENTS"),
        ("memory_save", {"key": "k", "value": {1, 2}}, "INVALID_ARGUMENTS"),
        ("memory_save", {"key": "k"}, "INVALID_ARGUMENTS"),
        ("memory_save", {"key": "k", "value": 1, "tags": "plan"}, "INVALID_ARGUMENTS"),
        ("memory_save", {"key": "k", "value": 1, "tags": [f"t{i}" for i in range(100)]}, "LIMIT_EXCEEDED"),
        ("memory_retrieve", {}, "INVALID_ARGUMENTS"),
        ("memory_retrieve", {"key": None, "tags": None}, "INVALID_ARGUMENTS"),
        ("memory_retrieve", {"tags": []}, "INVALID_ARGUMENTS"),
        ("memory_retrieve", {"tags": ["x"], "match": "most"}, "INVALID_ARGUMENTS"),
        ("memory_search", {"query": "x", "limit": 0}, "INVALID_ARGUMENTS"),
        ("memory_search", {"query": "x", "limit": 1000}, "INVALID_ARGUMENTS"),
    ],
)
def test_what_cannot_be_is_refused(call, notes, name, arguments, code):
    result = call(name, **arguments)
    assert result.error is not None, result
    assert result.error.code in {code, "INVALID_ARGUMENTS"}
    assert len(notes) == 0


def test_search_ranks_the_best_match_first(call):
    call("memory_save", key="churn", value="Why customers leave: price and service.", tags=["plan"])
    call("memory_save", key="weather", value="It rains.")
    call("memory_save", key="other", value="One of the customers is new.")
    found = call("memory_search", query="customers leave")
    assert found.data[0]["key"] == "churn"
    assert found.data[0]["tags"] == ["plan"]
    scores = [item["score"] for item in found.data]
    assert scores == sorted(scores, reverse=True)
    assert json.loads(found.text) == found.data
    assert [item["key"] for item in call("memory_search", query="customers", tags=["plan"]).data] == ["churn"]
    assert len(call("memory_search", query="customers", limit=1).data) == 1
    nothing = call("memory_search", query="zebra")
    assert (nothing.data, nothing.text) == ([], "No memory item matches 'zebra'.")


def test_a_model_may_save_but_needs_approval_to_delete(call):
    assert call("memory_save", key="k", value=1, _caller="model").ok
    assert call("memory_delete", key="k", _caller="model").error.code == "APPROVAL_DENIED"


def test_memory_files_answer_in_the_protocols_words(call):
    made = call("memory", command="create", path="/memories/global/a.md", file_text="one\ntwo\n", _caller="model")
    assert made.text == "File created successfully at: /memories/global/a.md"
    viewed = call("memory", command="view", path="/memories/global/a.md", view_range=[2, -1])
    assert viewed.text.splitlines()[0] == "Here's the content of /memories/global/a.md with line numbers:"
    assert viewed.text.splitlines()[1] == "     2\ttwo"
    replaced = call("memory", command="str_replace", path="/memories/global/a.md", old_str="two", new_str="2")
    assert replaced.text.startswith("The memory file has been edited.")
    inserted = call("memory", command="insert", path="/memories/global/a.md", insert_line=0, insert_text="zero\n")
    assert inserted.text == "The file /memories/global/a.md has been edited."
    renamed = call("memory", command="rename", old_path="/memories/global/a.md", new_path="/memories/b.md")
    assert renamed.text == "Successfully renamed /memories/global/a.md to /memories/b.md"
    assert call("memory", command="update", path="/memories/b.md", content="x").ok
    assert call("memory", command="delete", path="/memories/b.md").text == "Successfully deleted /memories/b.md"


def test_failures_of_memory_files_are_results_with_the_protocols_words(call):
    missing = call("memory", command="view", path="/memories/gone.md")
    assert missing.error.code == "MEMORY_NOT_FOUND"
    assert missing.text == "The path /memories/gone.md does not exist. Please provide a valid path."
    assert (missing.tool, bool(missing.call_id)) == ("memory", True)
    assert call("memory", command="view", path="/etc/passwd").error.code == "PATH_NOT_ALLOWED"
    assert call("memory", command="view", path="/memories/../etc").error.code == "PATH_NOT_ALLOWED"
    assert call("memory", command="erase", path="/memories").error.code == "INVALID_ARGUMENTS"
    assert call("memory", command="view").error.code == "INVALID_ARGUMENTS"


def test_each_memory_tool_says_which_store_is_for_what_and_search_finds_both(call, notes):
    call("memory_save", key="kpi", value="churn per month").raise_for_error()
    call("memory", command="create", path="/memories/plan.md", file_text="ask why churn rose").raise_for_error()
    assert {found["key"] for found in call.data("memory_search", query="churn")} == {"kpi", "/memories/plan.md"}
    about = {
        fn.__name__: " ".join(tool_of(fn).description.split()) for fn in (*memory_tools.TOOLS, *memory_files.TOOLS)
    }
    for name, other in (("memory_save", "tool memory"), ("memory_search", "tool memory"), ("memory", "memory_save")):
        assert other in about[name]
    for name in ("memory_retrieve", "memory_delete"):
        assert "what memory_save saved; files are" in about[name]
