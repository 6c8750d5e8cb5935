"""What stands behind the source of ``%explore``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    "line",
    [
        "%explore a.csv --compare b.csv --key id",
        "%explore 'a.csv' --compare \"b.csv\" --key 'id'",
        "%explore --compare b.csv --key id a.csv",
        "%explore select * from 'a.csv' where id > 0 --compare b.csv --key id",
    ],
)
def test_two_sources_are_compared_by_a_line(notebook: Any, line: str) -> None:
    folder = Path.cwd()
    (folder / "a.csv").write_text("id,n\n1,1\n2,2\n")
    (folder / "b.csv").write_text("id,n\n1,1\n2,3\n")
    explorer = notebook.run(line).value
    assert explorer.data()[["difference", "id", "changed"]].to_numpy().tolist() == [["changed", 2, "n"]]
    explorer.close()
