"""What engines complain about: the hint says how to go on, and nothing that does not help."""

from __future__ import annotations

import pytest

from nbtools.errors import NbtoolsError
from nbtools.sql import SqlSession


@pytest.fixture(scope="module")
def session() -> SqlSession:
    return SqlSession()


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("+02:00", "Name it 'Etc/GMT-2'"),
        ("-5", "Name it 'Etc/GMT+5'"),
        ("+05:30", "name a place"),
        ("z", "Name it 'UTC'"),
        ("+00:00", "Name it 'UTC'"),
    ],
)
def test_a_zone_as_a_distance_from_utc_says_the_name_that_means_it(session: SqlSession, zone: str, hint: str) -> None:
    query = "select timestamp '2024-07-01 12:00' at time zone '{}' as t"
    with pytest.raises(NbtoolsError, match="Unknown TimeZone") as caught:
        session.query(query.format(zone))
    assert hint in str(caught.value.hint)
    assert "Candidate" not in str(caught.value)
    if "Etc" in hint:
        (name,) = [word for word in str(caught.value.hint).split("'") if word.startswith("Etc")]
        hour = 12 - int(zone.partition(":")[0])
        assert session.query(query.format(name)).to_rows() == [[f"2024-07-01 {hour:02}:00:00+00:00"]]
