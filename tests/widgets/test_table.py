from __future__ import annotations

import queue
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd
import pytest

from nbtools.errors import Cancelled
from nbtools.sql.engines.protocol import QueryControl
from nbtools.sql.session import SqlSession
from nbtools.widgets.grid.grid_widget import _QUIET_S, _Samples
from nbtools.widgets.live.live_widget import ViewRequest
from nbtools.widgets.table import TableView


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"n": range(50), "name": [f"it's {n % 5}" for n in range(50)], "gap": [None, 1.5] * 25})


def test_a_view_gets_pages_of_the_arrangement_it_means(front_end: Any) -> None:
    view = front_end(TableView.from_frame(_frame()))
    assert view.ask("cells", start=10, stop=12, columns=[0, 2], rev=0) == [["10", None], ["11", "1.5"]]
    view.ask("sort", order=[["n", True]])
    assert view.widget.state["order"] == [["n", True]]
    assert view.ask("cells", start=0, stop=1, columns=[0], rev=1) == [["49"]]
    assert view.reply(view.start("cells", start=0, stop=1, columns=[0], rev=0))["error"]["stopped"]
    assert view.ask("whole", row=0, column=1, rev=1) == "it's 4"


def test_the_first_page_comes_along_with_each_arrangement(front_end: Any) -> None:
    view = front_end(TableView.from_frame(_frame()))
    assert view.widget.state["first"]["columns"] == [0, 1, 2]
    assert view.widget.state["first"]["rows"][0] == ["0", "it's 0", None]
    view.ask("sort", order=[["n", True]])
    assert [row[0] for row in view.widget.state["first"]["rows"]] == [str(n) for n in range(49, 19, -1)]
    view.ask("filter", add={"column": 0, "op": "<", "value": "0"})
    assert view.widget.state["first"]["rows"] == []


def test_a_first_page_that_cannot_be_read_is_told_when_it_is_asked_for(front_end: Any, tmp_path: Any) -> None:
    _frame().to_parquet(tmp_path / "a.parquet")
    with SqlSession(allowed_paths=[tmp_path]) as session:
        pager = session.open_pages(f"'{tmp_path}/a.parquet'")
        (tmp_path / "a.parquet").unlink()
        view = front_end(TableView(pager, title="a.parquet"))
    assert view.widget.state["first"] is None
    assert "50 rows" in view.widget.plain_text()
    assert view.reply(view.start("cells", start=0, stop=9, columns=[0], rev=0))["error"]["message"]


def test_filters_are_added_and_taken_away_one_by_one(front_end: Any) -> None:
    table = TableView.from_frame(_frame())
    view = front_end(table)
    view.ask("filter", add={"column": 0, "op": "≥", "value": "1,0"})
    view.ask("filter", add={"column": 1, "op": "contains", "value": "IT'S 3"})
    view.ask("filter", add={"column": 2, "op": "is there"})
    assert [table.state["rows"], table.state["of"]] == [4, 50]
    view.ask("filter", drop=0)
    assert table.state["conditions"][0].lstrip("(").startswith("contains(")  # of an object column by its JSON, too
    view.ask("filter", clear=True)
    assert [table.state["rows"], table.state["conditions"]] == [50, []]
    refusal = view.reply(view.start("filter", add={"column": 0, "op": "=", "value": "x"}))["error"]
    assert "not a number" in refusal["message"]
    assert table.state["rows"] == 50


def test_a_rectangle_is_copied_as_tab_separated_text_up_to_a_size(front_end: Any) -> None:
    frame = pd.DataFrame({"a\tb": ['x "y"', None], "c": [1, 2]})
    view = front_end(TableView.from_frame(frame))
    told = view.ask("copy", start=0, stop=2, columns=[0, 1], heads=True)
    assert told == {"text": '"a\tb"\tc\n"x ""y"""\t1\n\t2', "cells": 4}
    refused = view.reply(view.start("copy", start=0, stop=600_000, columns=[0], heads=False))["error"]
    assert "600,000 cells" in refused["message"]


def test_a_page_looks_at_so_many_cells_at_once_and_at_a_column_once(front_end: Any) -> None:
    view = front_end(TableView.from_frame(pd.DataFrame({"a": range(3), "b": range(3)})))
    assert view.ask("cells", start=0, stop=1, columns=[1, 0] * 5_000, rev=0) == [["0", "0"]]
    refused = view.reply(view.start("cells", start=0, stop=300_000, columns=[0, 1], rev=0))["error"]
    assert "600,000 cells" in refused["message"]


def test_a_text_file_shows_its_first_rows_and_then_all(
    front_end: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbtools.sql.pages.opening.SMALL_BYTES", 0)  # it is not a small one
    _frame().to_csv(tmp_path / "a.csv", index=False)
    with SqlSession(allowed_paths=[tmp_path]) as session:
        table = TableView(session.open_pages(f"'{tmp_path}/a.csv'"), title="a.csv")
    view = front_end(table)
    # The first page is there before the rows are read and counted.
    assert not table.state["whole"]
    assert table.state["first"]["rows"][:2] == [["0", "it's 0", None], ["1", "it's 1", "1.5"]]
    view.ask("finish")
    assert (table.state["whole"], table.state["rows"]) == (True, 50)
    assert table.state["first"]["rows"][:2] == [["0", "it's 0", None], ["1", "it's 1", "1.5"]]
    facts = view.ask("profile", column=0, exact=False, rev=table.state["rev"])
    assert (facts["least"], facts["greatest"], facts["rows"]) == ("0", "49", 50)


def test_values_of_a_column_are_listed_also_where_only_the_first_rows_are_there(front_end: Any, tmp_path: Any) -> None:
    _frame().to_csv(tmp_path / "a.csv", index=False)
    with SqlSession(allowed_paths=[tmp_path]) as session:
        view = front_end(TableView(session.open_pages(f"'{tmp_path}/a.csv'"), title="a.csv"))
    told = view.ask("values", column=1, search="3", rev=0)
    assert [list(each) for each in told["values"]] == [["it's 3", 10, "it's 3"]]
    assert view.widget.state["whole"]


def test_a_profile_waits_until_nobody_asked_any_table_for_rows_in_a_while(front_end: Any) -> None:
    one, other = (TableView.from_frame(_frame()) for _ in range(2))
    view, beside = front_end(one), front_end(other)
    beside.ask("cells", start=0, stop=5, columns=[0], rev=0)
    begun = time.monotonic()
    facts = view.ask("profile", column=0, exact=False, rev=0)
    assert facts["rows"] == 50
    assert time.monotonic() - begun > _QUIET_S / 2
    # Whoever asks for all rows wants them now.
    beside.ask("cells", start=5, stop=9, columns=[0], rev=0)
    assert view.ask("profile", column=0, exact=True, rev=0)["rows"] == 50
    assert view.ask("profile", column=0, exact=False, rev=7) is None


def test_a_profile_that_runs_ends_for_rows_and_begins_again_until_it_is_stopped() -> None:
    samples, begun, asked = _Samples(), queue.Queue[int](), ViewRequest("profile", {}, lambda _: None)

    def profile(control: QueryControl) -> None:
        begun.put(1)
        while True:
            control.check()
            time.sleep(0.001)

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(samples.run, asked, profile)
        for _ in range(3):
            begun.get(timeout=10)
            samples.make_way()
        begun.get(timeout=10)
        assert not answer.done()
        asked.stop()
        with pytest.raises(Cancelled):
            answer.result(10)


def test_the_plain_forms_show_the_first_rows_and_how_many_there_are() -> None:
    table = TableView.from_frame(_frame().assign(html="<script>"), title="things", note="cut at the row limit")
    text, page = table.plain_text(), table.plain_html()
    for told in (
        "things",
        "50 rows \N{MULTIPLICATION SIGN} 4 columns",
        "cut at the row limit",
        "the first 10 rows are shown",
    ):
        assert told in text
        assert told in page
    assert "<script>" not in page
    table.close()


def test_the_plain_forms_have_as_many_columns_as_a_page_and_say_so() -> None:
    wide = pd.DataFrame({f"column {n:02}": [f"value {n:02}", None] for n in range(40)})
    table = TableView.from_frame(wide)
    for form in (table.plain_text(), table.plain_html()):
        assert "2 rows \N{MULTIPLICATION SIGN} 40 columns · the first 10 columns are shown" in form
        assert "column 09" in form
        assert "column 10" not in form
    table.close()
    one = TableView.from_frame(pd.DataFrame({"long" * 50: [1], "next" * 40: [2]}))
    assert "the first" not in one.plain_text()
    one.close()
