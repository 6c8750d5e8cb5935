"""What columns mean, as a data package beside the data says."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbtools.errors import InvalidArguments
from nbtools.sql.files.dictionary import draft, meanings_of

PACKAGE = """
resources:
  - path: ./orders.csv
    schema:
      primaryKey: [id]
      fields:
        - {name: id, type: integer}
        - {name: amount, type: number, unit: CHF, description: "Net  price\\nof the order"}
        - {name: city, title: Where it was sold}
        - {type: string}
  - {path: other.csv}
  - nothing
"""


def test_what_columns_mean_is_read_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "datapackage.yaml").write_text(PACKAGE)
    expected = {"id": "key", "amount": "Net price of the order, in CHF", "city": "Where it was sold"}
    assert meanings_of(tmp_path / "orders.csv") == expected
    assert meanings_of(tmp_path / "other.csv") == {}
    assert meanings_of(tmp_path / "below" / "orders.csv") == {}


@pytest.mark.parametrize("text", ["resources: [", "a: 1", "resources: {a: 1}", "!!python/object/apply:os.getcwd []"])
def test_a_dictionary_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "datapackage.yaml").write_text(text)
    with pytest.raises(InvalidArguments, match=r"datapackage\.yaml"):
        meanings_of(tmp_path / "orders.csv")


def test_what_is_not_a_text_says_nothing(tmp_path: Path) -> None:
    bomb = "\n".join(["a0: &a0 [0, 0]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))])
    fields = "[{name: id, description: *a11, unit: *a11, title: b}, {name: *a11}]"
    package = f"{bomb}\nresources:\n- path: *a11\n- path: a.csv\n  schema:\n    primaryKey: 5\n    fields: {fields}\n"
    (tmp_path / "datapackage.yaml").write_text(package)
    assert meanings_of(tmp_path / "a.csv") == {"id": "b"}


def test_a_folder_that_cannot_be_looked_into_has_no_dictionary(tmp_path: Path) -> None:
    assert meanings_of(tmp_path / ("x" * 300) / "a.csv") == {}


def test_a_draft_is_read_back_once_it_is_filled_in(tmp_path: Path) -> None:
    types = ["BIGINT", "DECIMAL(9,2)", "DATE", "INTEGER[]"]
    text = draft(tmp_path / "My orders.csv", ["id", "amount", "day", "n"], types, {"id": True, "amount": True})
    assert "name: my-orders\n" in text
    assert [line.split()[1] for line in text.splitlines() if "type:" in line] == ["integer", "number", "date", "array"]
    (tmp_path / "datapackage.yaml").write_text(text.replace("unit: ''", "unit: CHF", 2))
    assert meanings_of(tmp_path / "My orders.csv") == {"id": "in CHF, key", "amount": "in CHF"}
