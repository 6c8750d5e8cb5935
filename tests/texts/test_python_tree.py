"""Trees of Python texts are whole also where other parsers run meanwhile, which Python 3.11 miscounts."""

from __future__ import annotations

import ast
import contextlib
import gc
import threading

import pytest

from nbtools.texts.python_tree import parse_python


class _Parsing:
    """Parses another text when the garbage collector ends it."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        with contextlib.suppress(SystemError):
            ast.parse("((((((((x))))))))")


def _parse_often() -> None:
    for _ in range(2_000):
        with contextlib.suppress(SystemError):  # it is miscounted here, too
            ast.parse("(1 + [2])")


def test_a_parser_that_runs_in_the_middle_changes_nothing() -> None:
    text = "\n".join(f"a{n} = [f({n}, x) for x in range({n})]" for n in range(300))
    threshold = gc.get_threshold()
    others = [threading.Thread(target=_parse_often) for _ in range(2)]
    gc.set_threshold(50, 2, 2)
    try:
        for other in others:
            other.start()
        for _ in range(10):  # ast.parse alone fails in the first
            for _ in range(20):
                _Parsing()
            assert len(parse_python(text).body) == 300
    finally:
        gc.set_threshold(*threshold)
        for other in others:
            other.join()


def test_what_is_no_python_is_said_as_ever() -> None:
    with pytest.raises(SyntaxError):
        parse_python("a b")
    assert ast.dump(parse_python("a + 1", mode="eval")) == ast.dump(ast.parse("a + 1", mode="eval"))
