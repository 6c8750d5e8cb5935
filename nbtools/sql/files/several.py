"""Several files in one call: columns of later ones, which DuckDB leaves out in silence, and the call that has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nbtools.errors import NbtoolsError
from nbtools.sql.files.calls import FileCall
from nbtools.sql.files.cell_texts import Ask, described
from nbtools.texts.sql_quotes import quote_text
from nbtools.texts.visible import counted

MOST_HEADERS = 64
"""Text files whose first lines are looked at, and told of one by one where they are skipped."""
_MOST_FOOTERS = 1000  # to read one takes a hundredth of a look at a text
_MOST_SAID = 3
_BY_NAME = {"union_by_name": "true"}
# With these options, it is said whether columns count by their names or by their places.
_SAID = frozenset({*_BY_NAME, "columns", "names", "column_names", "auto_detect"})
_MISMATCHES = (
    re.compile(r'.*Main file schema: (?P<first>.*?)\s+Current file: (?P<file>.*?)\s+Column with name: "(?P<name>.*?)"'),
    re.compile(r'.*column "(?P<name>.*?)" was read .* file "(?P<first>.*?)", but .* in file "(?P<file>.*?)"'),
)


class LeftOut(NamedTuple):
    """Columns of later files that a call leaves out, by file; and a phrase for people, empty where there are none."""

    columns: Mapping[str, Sequence[str]]
    phrase: str = ""

    def hint(self, error: NbtoolsError, call: FileCall) -> str | None:
        """Return how a column is read that an error says is unknown; `None` where no file has it."""
        for file, columns in self.columns.items():
            for name in columns:
                if f'"{name}"'.casefold() in error.message.casefold():
                    return f"{file} has {name}; {call.text(_BY_NAME)} reads it."
        return None


def footers(files: Sequence[str], ask: Ask) -> dict[str, list[str]]:
    """Return the names of the columns of Parquet files."""
    heads: dict[str, list[str]] = {}
    listed = ", ".join(map(quote_text, files[:_MOST_FOOTERS]))
    inner = 0
    for file, name, children in ask(f"SELECT file_name, name, num_children FROM parquet_schema([{listed}])"):
        if file not in heads:  # the root of a schema, which is no column
            heads[file], inner = [], 0
            continue
        if not inner:
            heads[file].append(str(name))
        inner += int(children or 0) - bool(inner)
    return heads


def by_name(call: FileCall, heads: Mapping[str, Sequence[str]], count: int) -> FileCall:
    """Return a call that reads each column by its name, where all files have the same ones in other orders.

    DuckDB finds the right cells without that, but compares the types of columns by their places: where these differ, it
    makes texts of all columns. For the parameters see `left_out`.
    """
    orders = {tuple(map(str.casefold, names)) for names in heads.values()}
    is_same = len(heads) == count and len({*map(frozenset, orders)}) == 1 < len(orders)
    return call._replace(options={**call.options, **_BY_NAME}) if is_same and _SAID.isdisjoint(call.options) else call


def left_out(call: FileCall, heads: Mapping[str, Sequence[str]], count: int, ask: Ask) -> LeftOut:
    """Return the columns that a call leaves out.

    Parameters
    ----------
    call
        A call of several files.
    heads
        The names of the columns of each file that was looked at.
    count
        How many files there are.
    ask
        Runs a query and returns its rows.
    """
    of = f"the columns of {len(heads):,} of {count:,} files were compared" if len(heads) < count else ""
    if not heads or "union_by_name" in call.options:
        return LeftOut({})
    if len({frozenset(map(str.casefold, names)) for names in heads.values()}) < 2:
        return LeftOut({}, of)
    there = {name.casefold() for name in described(call, ask, {})}
    pairs = ((file, [name for name in names if name.casefold() not in there]) for file, names in heads.items())
    columns = {file: names for file, names in pairs if names}
    if not columns:
        return LeftOut({}, of)
    phrases = [f"{file} has {_some(names)}" for file, names in [*columns.items()][:_MOST_SAID]]
    more = len(columns) - len(phrases)
    phrases += [f"{counted(more, 'more file')} have such columns"] if more else []
    each = "it" if sum(map(len, columns.values())) == 1 else "them"
    phrase = f"{', '.join(phrases)} too; union_by_name = true reads {each}"
    return LeftOut(columns, "; ".join(filter(None, (phrase, of))))


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SAID
    return ", ".join(names[:_MOST_SAID]) + (f" and {more:,} more columns" if more > 0 else "")


def mismatch_hint(error: NbtoolsError, call: FileCall, heads: Mapping[str, Sequence[str]]) -> str | None:
    """Let an error say in a few words which file lacks a column, and return the call that reads all; else `None`.

    The engine names the first file that differs in any way, such as the type of a column: what is lacking, the names of
    the columns tell, see `left_out`.
    """
    match = next(filter(None, (pattern.match(" ".join(error.message.split())) for pattern in _MISMATCHES)), None)
    if match is None:
        return None
    there = {file: [*map(str.casefold, names)] for file, names in heads.items()}
    first_names = heads.get(match["first"], [match["name"]])
    pairs = [(file, name) for file in there for name in first_names if name.casefold() not in there[file]]
    pairs += [] if match["file"] in there else [(match["file"], match["name"])]
    for file, name in pairs[:1]:
        error.message = f"{file} has no column {name}, which {match['first']} has."
    return f"Read missing columns as NULL: FROM {call.text(_BY_NAME)}"
