"""Values as JSON that tells one from the other, and back."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Any

import pytest

from nbtools.memory.exact.values import from_json, to_json

ZURICH = zoneinfo.ZoneInfo("Europe/Zurich")
TWICE = [dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZURICH, fold=fold) for fold in (0, 1)]


@pytest.mark.parametrize("value", TWICE, ids=["first", "second"])
def test_an_hour_that_a_zone_has_twice_comes_back_as_the_one_it_was(value: dt.datetime) -> None:
    back = from_json(to_json(value))
    assert (back, back.fold, back.utcoffset(), back.tzinfo) == (value, value.fold, value.utcoffset(), ZURICH)


class _Zone(dt.tzinfo):
    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=1)


def test_a_zone_that_has_no_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"no form for the zone <.*_Zone"):
        to_json([dt.datetime(2024, 1, 1, tzinfo=_Zone())])
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert repr(from_json(to_json(moment))) == repr(moment)


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", (1,), [1], {1: "a"}, {"1": "a"}, (True, [1, (None,)])])
def test_what_is_equal_for_python_keeps_its_type(value: Any) -> None:
    back = from_json(to_json(value))
    assert (back, type(back), repr(back)) == (value, type(value), repr(value))
