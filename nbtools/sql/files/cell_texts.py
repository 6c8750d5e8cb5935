"""Cells as texts: a call whose cells are all texts, what is counted in them, and the call that gives them types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from nbtools.sql.files.calls import FileCall
from nbtools.sql.files.cells import CODE, COMMA_NUMBER, WHOLE_TYPES, Count, Strays, misfit_of, moment_type, other_orders
from nbtools.sql.files.options import MissingWords
from nbtools.sql.verdict.reviewed import names
from nbtools.texts.sql_quotes import quote_identifier, quote_text

Ask = Callable[[str], list[list[Any]]]
# A reader makes other values of some cells for these, where it refuses them for all others.
_CHANGING = WHOLE_TYPES | names("BOOLEAN DATE DOUBLE TIME TIMESTAMP")


class CallReading(NamedTuple):
    """What takes the place of a call, `None` to leave it; what was done, for people; and words read as missing.

    And how dates and moments are written, where not as in ISO, and so in columns that have their own form, by name; and
    the marks of numbers that a column proves.
    """

    text: str | None = None
    notes: tuple[str, ...] = ()
    missing: tuple[MissingWords, ...] = ()
    formats: Mapping[str, str] = {}
    marks: Mapping[str, str] = {}
    own_forms: Mapping[str, str] = {}


def listed(texts: Sequence[str]) -> str:
    """Return texts as SQL writes a list of them."""
    return ", ".join(map(quote_text, texts))


class Cells(NamedTuple):
    """All cells of a call as texts: its columns, how their dates are written, its form, and words for missing ones.

    And of how many rows cells are counted, `None` for all; and how dates are written in columns that have their own
    form.
    """

    call: FileCall
    names: tuple[str, ...]
    formats: Mapping[str, str]
    form: Mapping[str, str]
    words: Sequence[str]
    ask: Ask
    own_forms: Mapping[int, str] = {}
    most_rows: int | None = None

    def form_at(self, at: int, kind: str) -> str:
        """Return how the dates or moments of a column are written; empty where as in ISO."""
        return self.formats.get(kind, "") if kind == "VARCHAR" or at not in self.own_forms else self.own_forms[at]

    def _misfit(self, at: int, kind: str) -> str:
        form = self.form_at(at, kind)
        cell = self._bare_number(quote_identifier(self.names[at]), kind)
        return misfit_of(cell, kind, {kind: form} if form else {})

    def counted(self, types: Sequence[str], texts: Collection[int] = ()) -> dict[int, Count]:
        """Count in one pass, of all columns but texts, the cells that do not fit, and the words for missing ones.

        Parameters
        ----------
        types
            Those of the columns.
        texts
            The places of columns that are texts, because of cells that do not fit the type that is given.
        """
        columns = {at: other_orders(self.form_at(at, kind)) for at, kind in enumerate(types) if kind != "VARCHAR"}
        words = listed(self.words or [""])
        parts = []
        for at, others in columns.items():
            cell, kind = quote_identifier(self.names[at]), types[at]
            form, misfit = self.form_at(at, kind), self._misfit(at, kind)
            if kind == "DOUBLE" and self.words:  # of which a cast takes some
                misfit = f"({misfit} OR lower({cell}) = 'nan' AND {cell} IN ({words}))"
            # A cell may be missing already, by a `nullstr` of the person's own.
            is_odd, word = f"{cell} IS NOT NULL AND {misfit}", f"CASE WHEN {cell} IN ({words}) THEN {cell} ELSE '' END"
            parts.append(f"histogram(CASE WHEN {is_odd} THEN {word} END)")
            if at in texts:
                cast = f"try_strptime({cell}, {quote_text(form)})" if form else f"TRY_CAST({cell} AS {kind})"
                cast = "NULL" if kind == COMMA_NUMBER else cast
                is_code = f"{cast} IS NOT NULL OR regexp_full_match({cell}, {quote_text(CODE)})"
                stray = f"CASE WHEN {cell} IN ({words}) THEN NULL WHEN {is_code} THEN '' ELSE {cell} END"
                parts += [f"count({cell})", f"min(CASE WHEN {is_odd} THEN {stray} END)"]
            for other in others:
                own = f"try_strptime({cell}, {quote_text(form)})"
                moment = f"try_strptime({cell}, {quote_text(other)})"
                fits = f"bool_and({moment} IS NOT NULL) FILTER ({own} IS NOT NULL) AND bool_or({moment} <> {own})"
                if other.find("%y") == form.find("%y"):  # day and month change places
                    fits = f"max(day({own})) <= 12 AND bool_or(day({own}) <> month({own}))"
                parts.append(fits)
        # A column of texts takes every cell; still there may be a line that is none of the file's form.
        cells = iter(self.ask(f"SELECT {', '.join(parts) or 'count(*)'} FROM {self.texts()}")[0])
        counts = {}
        for at, others in columns.items():
            odd = dict(next(cells) or ())
            bad, strays = odd.pop("", 0), None
            if at in texts:
                others_there, cell = next(cells) - bad - sum(odd.values()), next(cells)
                strays = Strays(types[at], bad, cell or "", others_there)
            counts[at] = Count(bad, odd, tuple(other for other in others if next(cells)), strays=strays)
        return counts

    def with_own_forms(
        self, dates: Mapping[int, Sequence[str]], types: Sequence[str], counts: Mapping[int, Count]
    ) -> tuple[Cells, list[str], dict[int, Count]]:
        """Return the cells, types and counts where columns of texts are dates, each written in its own form.

        Parameters
        ----------
        dates
            The forms in which all cells of such columns are dates, by their places; several prove none.
        types
            The types of the columns, as decided so far.
        counts
            What was counted of columns, by their places, so far.
        """
        own_forms = {at: forms[0] for at, forms in dates.items() if len(forms) == 1}
        if not own_forms:
            return self, [*types], dict(counts)
        cells = self._replace(own_forms=own_forms)
        read = {at: moment_type(form) for at, form in own_forms.items()}
        again = cells.counted([read.get(at, "VARCHAR") for at in range(len(types))])
        return cells, [read.get(at, kind) for at, kind in enumerate(types)], {**counts, **again}

    def reading(self, guess: Sequence[str], types: Sequence[str], counts: Mapping[int, Count]) -> CallReading:
        """Return the call with the types that were decided; where nothing differs from the guess, it is left."""
        gaps = {at: count.missing for at, count in counts.items() if count.missing and types[at] != "VARCHAR"}
        missing = (MissingWords(self.names[at], sum(gap.values()), tuple(sorted(gap))) for at, gap in gaps.items())
        # Words that surely are in no column of texts are left to the reader, which takes a third less than a cast.
        words = {word for gap in gaps.values() for word in gap}
        texts = (counts.get(at) for at, kind in enumerate(types) if kind == "VARCHAR")
        if words and all(count is not None and words.isdisjoint(count.missing) for count in texts):
            read = self._replace(form={**self.form, "nullstr": f"[{listed(['', *sorted(words)])}]"})
            return read.reading(guess, types, {})._replace(missing=tuple(missing))
        casts = {at: [*gaps.get(at, ())] for at in (*gaps, *self.own_forms)}
        kinds = {name: "VARCHAR" if at in casts else types[at] for at, name in enumerate(self.names)}
        if "auto_detect" not in self.form:
            stays = {self.names[at] for at, kind in enumerate(types) if kind == guess[at] and at not in casts}
            kinds = {name: kind for name, kind in kinds.items() if name not in stays}
        if not kinds:
            return CallReading(self.call.text(self.form) if "nullstr" in self.form else None)
        text = self.typed(kinds)
        if casts:
            values = (
                f"{self._cast(at, types[at], words)} AS {quote_identifier(self.names[at])}"
                for at, words in casts.items()
            )
            text = self._replaced([*values], text)
        return CallReading(text, missing=tuple(missing))

    def strict(self, types: Sequence[str], texts: Collection[int]) -> CallReading:
        """Return the call with an error in place of each cell that would become another value, but for some texts."""
        kinds = ((at, kind) for at, kind in enumerate(types) if at not in texts)
        looked = {at: kind for at, kind in kinds if kind in _CHANGING or self.form_at(at, kind)}
        parts, paths = [], self.call.paths
        quoted = [*map(quote_text, paths)]
        files = quoted[0] if len(paths) == 1 else f"[{', '.join(quoted)}]"
        where = paths[0] if len(paths) == 1 else f"one of {len(paths):,} files"
        for at, kind in looked.items():
            cell, name = quote_identifier(self.names[at]), self.names[at]
            way = f", but the first lines of its column {name} are {kind}. Name its type: "
            way += f"FROM read_csv({files}, types = {{{quote_text(name)}: 'VARCHAR'}}), "
            way += f"or examine all lines: FROM read_csv({files}, sample_size = -1)"
            what = f"error(concat({quote_text(where)}, ' contains ', {cell}, {quote_text(way)}))"
            is_changed = f"{cell} IS NOT NULL AND {self._misfit(at, kind)}"
            parts += [f"CASE WHEN {is_changed} THEN {what} ELSE {self._cast(at, kind)} END AS {cell}"]
        if not looked and not texts:
            return CallReading(self.call.text(self.form) if self.form else None)
        source = self.typed({self.names[at]: "VARCHAR" for at in (*looked, *texts)})
        return CallReading(self._replaced(parts, source) if parts else source)

    def _replaced(self, columns: Sequence[str], source: str) -> str:
        # The column that DuckDB has beside those of the file would not be seen through the brackets.
        filename = ", filename" if self.call.names_files else ""
        return f"(SELECT * REPLACE ({', '.join(columns)}){filename} FROM {source})"

    def texts(self) -> str:
        """Return the call with all cells as texts, or the first rows of it."""
        texts = self.typed(dict.fromkeys(self.names, "VARCHAR"))
        return texts if self.most_rows is None else f"(FROM {texts} LIMIT {self.most_rows})"

    def typed(self, kinds: Mapping[str, str]) -> str:
        """Return the call with columns of these types."""
        if "auto_detect" not in self.form and len(kinds) == len(self.names) and {*kinds.values()} == {"VARCHAR"}:
            return self.call.text({**self.form, "all_varchar": "true"})
        struct = ", ".join(f"{quote_text(name)}: {quote_text(kind)}" for name, kind in kinds.items())
        if "auto_detect" not in self.form:
            return self.call.text({**self.form, "types": f"{{{struct}}}"})
        formats = {kind: text for kind, text in self.formats.items() if kind in kinds.values()}
        options = {f"{kind.lower()}format": quote_text(text) for kind, text in formats.items()}
        return self.call.text({**self.form, **options, "columns": f"{{{struct}}}"})

    def _bare_number(self, cell: str, kind: str) -> str:
        """Return a cell with the marks of numbers that SQL has."""
        mark, comma = (self.call.options.get(name) for name in ("thousands", "decimal_separator"))
        if kind == "DOUBLE" or kind in WHOLE_TYPES:
            cell = f"replace({cell}, {mark}, '')" if mark else cell
            cell = f"replace({cell}, {comma}, '.')" if comma else cell
        return cell

    def _cast(self, at: int, kind: str, words: Sequence[str] = ()) -> str:
        cell = quote_identifier(self.names[at])
        number = self._bare_number(cell, kind)
        there = f"CASE WHEN {cell} NOT IN ({listed(words)}) THEN {number} END" if words else number
        form = self.form_at(at, kind)
        there = f"strptime({there}, {quote_text(form)})" if form else there
        return f"CAST({there} AS {kind})"


def described(call: FileCall, ask: Ask, more: Mapping[str, str]) -> dict[str, str]:
    """Return the types of the columns of a call, by their names, with further options."""
    return {str(row[0]): str(row[1]) for row in ask(f"DESCRIBE FROM {call.text(more)}")}


def room(call: FileCall) -> dict[str, str]:
    """Return the option for a few megabytes, where no more are looked at: a small engine has no room for many."""
    return {"buffer_size": "4000000"} if {"buffer_size", "max_line_size"}.isdisjoint(call.options) else {}
