"""Errors are plain values that agree with the tree drawn on top of their module."""

from __future__ import annotations

import pickle
import re

import pytest

from nbtools import errors
from nbtools.errors import CODES, ExecutionFailed, Interrupted, InvalidArguments, KernelDied, NbtoolsError, nearest
from nbtools.texts.visible import in_commands, in_magics

CLASSES = sorted(
    (found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, NbtoolsError)),
    key=lambda cls: cls.__name__,
)
LEAVES = [cls for cls in CLASSES if cls is not NbtoolsError]


def _drawn() -> dict[str, tuple[int, str | None, str, str]]:
    """Return class name to its depth, builtin, who must act and code, as the docstring draws them."""
    found = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^(    [│ ]*)[├└]── (\w+)\s+(?:(\w+)\s+)?(user|model|human|world)\s+([A-Z_]+)$", line):
            found[match[2]] = (len(match[1]) // 4, match[3], match[4], match[5])
    return found


def test_the_tree_in_the_docstring_names_every_class() -> None:
    assert _drawn().keys() == {cls.__name__ for cls in LEAVES}


@pytest.mark.parametrize("cls", LEAVES, ids=lambda cls: cls.__name__)
def test_a_class_is_what_the_tree_says(cls: type[NbtoolsError]) -> None:
    depth, builtin, who, code = _drawn()[cls.__name__]
    assert (cls.who, cls.code) == (who, code)
    drawn_above, levels = cls, 1
    # The tree draws a class below the first of its bases.
    while drawn_above is not NbtoolsError:
        drawn_above, levels = drawn_above.__bases__[0], levels + 1
    assert levels == depth + 1
    if builtin:
        assert builtin in {base.__name__ for base in cls.__bases__}
    else:
        assert cls.__bases__ != (NbtoolsError,), "a class right below the root also inherits a builtin"


def test_every_code_has_a_class_and_every_class_a_code() -> None:
    assert {cls.code for cls in LEAVES} == set(CODES)
    assert len(CODES) == len(set(CODES)) == 24


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_survives_pickling_whole(cls: type[NbtoolsError]) -> None:
    made = cls("found 3", hint="give 4", tried="counting", data={"n": 3, "parts": ["a"]}, retryable=True)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is cls
    assert (again.message, again.hint, again.tried, again.data, again.retryable) == (
        "found 3",
        "give 4",
        "counting",
        {"n": 3, "parts": ["a"]},
        True,
    )
    assert str(again) == str(made) == "found 3 (give 4)"


def test_the_wire_form_has_code_message_hint_and_retryable() -> None:
    assert KernelDied("gone").to_dict() == {"code": "KERNEL_DIED", "message": "gone", "hint": None, "retryable": True}
    assert ExecutionFailed("broke", hint="mend").to_dict() == {
        "code": "EXECUTION_FAILED",
        "message": "broke",
        "hint": "mend",
        "retryable": False,
    }


def test_only_what_a_retry_can_help_is_retryable() -> None:
    assert {cls.__name__ for cls in LEAVES if cls("x").retryable} == {"KernelDied", "NetworkError"}
    assert KernelDied("x", retryable=False).retryable is False
    assert KernelDied("x").retryable is True, "the instance above did not change the class"


def test_builtin_handlers_catch_what_they_would_guess() -> None:
    with pytest.raises(ValueError, match="found"):
        raise InvalidArguments("found 3")
    with pytest.raises(TimeoutError):
        raise errors.CallTimeout("late")
    with pytest.raises(ImportError):
        raise errors.MissingExtra("absent")
    with pytest.raises(KeyError):
        raise errors.MemoryNotFound("absent")


def test_a_key_error_shows_its_message_without_quotes() -> None:
    assert str(errors.MemoryNotFound("no item 'a'")) == "no item 'a'"


def test_a_notebook_shows_at_most_three_lines() -> None:
    whole = ExecutionFailed("line 3: division by zero", hint="Guard the divisor.", tried="calling data_analyze")
    assert whole.three_lines() == [
        "ExecutionFailed: calling data_analyze",
        "line 3: division by zero",
        "→ Guard the divisor.",
    ]
    assert whole._render_traceback_() == whole.three_lines()
    assert ExecutionFailed("x").three_lines() == ["ExecutionFailed", "x"]


def test_a_caret_keeps_its_place_and_the_hint_goes_behind_it() -> None:
    pointing = errors.SqlInvalid('line 1: no column "b"\n    select b\n           ^', hint="Columns are a.")
    assert pointing.three_lines() == ['line 1: no column "b"', "    select b", "           ^", "→ Columns are a."]
    bare = errors.SqlInvalid('line 1: no column "b"\n    select b\n           ^')
    assert bare.three_lines() == bare.message.split("\n")
    two = errors.ConfigInvalid("a.yaml:1:1: x\n    b\n    ^\na.yaml:2:1: y\n    c\n    ^")
    assert two.three_lines() == two.message.split("\n")


def test_a_message_of_many_lines_is_brought_onto_one() -> None:
    long = ExecutionFailed("first\n\n  second\nthird\nfourth", hint="Look.", tried="running")
    assert long.three_lines() == ["ExecutionFailed: running", "first second third fourth", "→ Look."]


def test_a_face_says_the_commands_of_a_hint_in_its_own_words_and_leaves_what_the_person_wrote() -> None:
    error = InvalidArguments("LIKE '%agent show'", hint="'/a/%agent show', /a/%agent/x or %agent show it's.")
    lines = ["InvalidArguments", error.message, "→ '/a/%agent show', /a/%agent/x or nbtools agent show it's."]
    assert error.three_lines(in_commands) == lines
    hint = 'It\'s nbtools agent resume 7 (nbtools doctor); not nbtools agent.txt, "nbtools agent" and a/nbtools trust.'
    told = 'It\'s %agent resume 7 (%nbtools doctor); not nbtools agent.txt, "nbtools agent" and a/nbtools trust.'
    assert InvalidArguments("nbtools agent", hint=hint).three_lines(in_magics)[1:] == ["nbtools agent", f"→ {told}"]


@pytest.mark.parametrize("name", ["..", "../..", "..."])
def test_a_folder_that_a_message_ends_with_stays_whole(name: str) -> None:
    assert InvalidArguments(f"there is no folder {name}").message == f"there is no folder {name}"
    assert InvalidArguments(f"there is no folder {name}.").message == f"there is no folder {name}."
    assert InvalidArguments("it failed: no such table..").message == "it failed: no such table."


def test_data_is_copied_from_the_caller() -> None:
    given = {"a": 1}
    made = ExecutionFailed("x", data=given)
    made.data["b"] = 2
    assert given == {"a": 1}


def test_what_an_interrupt_carries_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(Interrupted([1, 2]))).value == [1, 2]


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("memory_sav", ["memory_save", "sql_query"], "memory_save"),
        ("SQL_Query", ["memory_save", "sql_query"], "sql_query"),
        ("zzz", ["memory_save", "sql_query"], None),
        ("", ["memory_save"], None),
        ("a", [], None),
    ],
)
def test_nearest_offers_what_resembles_and_nothing_else(name: str, known: list[str], expected: str | None) -> None:
    assert nearest(name, known) == expected


NAMES = ["calculator", "file_read", "file_write", "memory_search", "note", "sql_query", "Zürich"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("calculater", "calculator"),
        ("read_file", "file_read"),
        ("write-file", "file_write"),
        ("sql", "sql_query"),
        ("MEMORY SEARCH", "memory_search"),
        ("serach_memory", "memory_search"),
        ("zurich", "Zürich"),
        ("nothing", None),
        ("goal", None),
        ("file", "file_read"),
        ("", None),
        ("___", None),
    ],
)
def test_the_nearest_name_is_near_in_letters_or_words(name: str, found: str | None) -> None:
    assert nearest(name, NAMES) == found


@pytest.mark.parametrize("quoted", ["it failed: no.", "it failed: no..", "it failed: no..."])
def test_a_sentence_that_ends_with_a_quoted_one_has_one_full_stop(quoted: str) -> None:
    assert InvalidArguments(quoted).message in {"it failed: no.", "it failed: no..."}
