"""MemoryEngine: commits, merges and reads for one memory file in one process, the keeper or an embedding one.

::

    commit:  requests ─→ WriteBatch decides rows ─→ Journal makes them durable ─→ overlay makes them visible
    merge:   overlay ─→ DuckDB, a slice at a time, off the path of any request
    read:    overlay, else cache, else LiveIndex, else DuckDB;  LiveIndex knows what has a tag, prefix or word

The overlay holds the rows that DuckDB does not have yet, so every read sees every acknowledged write at once. Rows are
visible only after they are durable. One thread commits at a time; any number read.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from nbtools.errors import InvalidArguments, MemoryDamaged, MemoryWriteFailed, NbtoolsError
from nbtools.memory.calls import CALLS_KEPT
from nbtools.memory.duckdb.cache import BloomFilter, RowCache
from nbtools.memory.duckdb.journal import Journal, JournalEntry
from nbtools.memory.duckdb.live_index import IndexSource, LiveIndex
from nbtools.memory.duckdb.tables import Tables
from nbtools.memory.records import Scope
from nbtools.memory.repository import CallQuery, Query, outcome_unknown
from nbtools.memory.rules.erasure import Erasure, Erasures
from nbtools.memory.rules.rows import Clock, Row, matches, newest_of, versions_of
from nbtools.memory.rules.text_search import blended, cosine
from nbtools.memory.rules.transitions import ChangeOutcome, StoreView, WriteBatch, WriteRequest

_SLICE = 500
# Merging costs as much as all the rest of a write, and as little later; what waits is read again after a crash.
_OVERLAY_ROWS = 10_000
_OVERLAY_BYTES = 8 << 20
_CACHE_BYTES = 8 << 20
_REPEAT_WINDOW = 600 * 1_000_000
_NEAREST = 200
_KNOWN_AT_START = 5_000
# Processes that live too briefly to trim by themselves do it on leaving, once the log has become so long.
_LONG_LOG = 5_000
# Rows that are stored without what is forgotten, or that say what is.
_CLEANED = ("call", "forget")

CommitOutcome = list[ChangeOutcome] | NbtoolsError
_T = TypeVar("_T")


class MemoryEngine:
    """Commit, merge and read.

    Parameters
    ----------
    tables
        The open DuckDB file.
    journal
        Where rows become durable; `None` for a memory that does not outlive the process.
    history
        How many versions of a record are kept.
    clock
        `None` makes one that starts behind the newest row.
    index
        The file that keeps the index of keys, tags and words; `None` to have it in memory.
    remembered
        How many request ids are known without a look into the file.
    """

    def __init__(
        self,
        tables: Tables,
        journal: Journal | None,
        *,
        history: int = 100,
        clock: Clock | None = None,
        index: Path | None = None,
        remembered: int = 20_000,
    ) -> None:
        self.tables = tables
        self.journal = journal
        self.history_kept = history
        self._remembered = remembered
        self.notices: list[str] = []
        self._view = StoreView(self.newest, self.live_ids, self.versions)
        self._commit_lock = threading.Lock()
        self._merge_lock = threading.Lock()
        # Guards the hand-over between overlay, cache and DuckDB; held for moments only. Point reads do without it.
        self._state = threading.Lock()
        self._overlay: dict[str, Row] = {}
        self._unmerged: deque[JournalEntry] = deque()
        self._unmerged_rows = 0
        self._unmerged_bytes = 0
        self._merges = self._merges_at_release = 0
        self._merged_since_trim = 0
        self._requests: dict[str, None] = {}
        # Takes what was forgotten out of every file; the code that opens a file with others beside it sets it.
        self.erase: Callable[[], None] = self.settle
        # Held while the file is copied: what was copied before a forget must not take the place of what came after.
        self.copy_lock = threading.Lock()
        self._erasures = Erasures()
        # The requests of this moment that forget something.
        self._forgetting: set[str] = set()
        self._cache = RowCache(_CACHE_BYTES)
        self._seq = tables.applied()
        self._has_forgotten = self._seq > 0
        newest = max(tables.newest(), self._replay(journal))
        self.clock = clock or Clock(newest)
        # Ids that came while the filter is being made again; `None` while it is not.
        self._newcomers: list[str] | None = None
        self._filter: BloomFilter | None = None
        if tables.count() <= _KNOWN_AT_START:
            self.build_id_filter()
        self._index = LiveIndex(IndexSource(self._newest_rows, tables.scan, tables.totals), index)
        if self._index.ahead:
            self.notices.append(
                f"The last {self._index.ahead} changes are lost: they were stored, and the journal ends before."
            )

    # -- writing

    def commit(self, requests: Sequence[WriteRequest]) -> list[CommitOutcome]:
        """Decide requests in order, store their rows in one write of the journal, and return the outcome of each.

        A refused request does not touch the others. When the disk refuses, none is stored and each that had something
        to store gets `MemoryWriteFailed`.
        """
        outcomes = self._commit(requests)
        if self._forgetting:
            forgetting, self._forgetting = self._forgetting, set()
            try:
                self.erase()
                self._cache.clear()
                if self.journal is None:  # else the file was written again, and the index with it
                    self._index.erase()
            except MemoryDamaged:
                raise
            except OSError as exc:
                failed = _not_erased(exc)
                pairs = zip(requests, outcomes, strict=True)
                return [failed if request.request_id in forgetting else outcome for request, outcome in pairs]
        return outcomes

    def settle(self) -> None:
        """Merge everything that was committed."""
        while self.merge():
            pass

    @contextmanager
    def hold_changes(self) -> Iterator[None]:
        """Block all changes inside the `with`, after everything is merged."""
        with self._commit_lock:
            self.settle()
            yield

    def rewrite(self, draft: Path) -> None:
        """Replace the file by a copy and build the index again; call it inside `hold_changes`."""
        assert self.journal is not None, "what has a file has a journal"
        self.journal.erase()
        self.tables.replace_by(draft)
        self._index.erase()
        self.tables.mark_erased()

    def must_erase(self) -> bool:
        """Return whether an earlier life forgot a key, and did not come to take it out of the files."""
        return self.tables.must_erase() or any(row.op == "forget" for entry in self._unmerged for _, row in entry.rows)

    def _commit(self, requests: Sequence[WriteRequest]) -> list[CommitOutcome]:
        with self._commit_lock:
            stage = WriteBatch(self._view, self._seq, self.clock.now)
            outcomes: list[CommitOutcome] = []
            entries: list[JournalEntry] = []
            first_of: dict[str, int] = {}
            for index, request in enumerate(requests):
                first = first_of.setdefault(request.request_id, index)
                if first < index:
                    outcomes.append(outcomes[first])
                    continue
                stored = self._find_stored(request)
                outcome, rows = (stored, ()) if stored is not None else self._decide(stage, request)
                outcomes.append(outcome)
                if rows:
                    entry = JournalEntry(request.request_id, rows)
                    is_cleaned = self._erasures or any(row.op in _CLEANED for _, row in rows)
                    entries.append(self._clean(entry, entries) if is_cleaned else entry)
            failed = self._store(entries, stage.seq) if entries else None
            # What was refused may have been refused because of what was not stored, so all fail together.
            return outcomes if failed is None else [failed] * len(requests)

    def sweep(self) -> int:
        """Delete some of the expired records; return how many."""
        with self._commit_lock:
            now = self.clock.now()
            with self._state:
                due = [row.id for row in self._overlay.values() if row.value is not None and not row.is_live(now)]
            stage = WriteBatch(self._view, self._seq, self.clock.now)
            rows = stage.expire([*due[:_SLICE], *self.tables.due(now, _SLICE)])
            if rows and self._store([JournalEntry("", rows)], stage.seq) is None:
                return len(rows)
            return 0

    def merge(self) -> int:
        """Move the oldest slice of the overlay to DuckDB; return how many rows are left."""
        with self._merge_lock:
            entries, size = [], 0
            with self._state:
                for entry in self._unmerged:
                    entries.append(entry)
                    size += len(entry.rows)
                    if size >= _SLICE:
                        break
                self._merges += 1  # Odd from here on: what is read from DuckDB now may not be cached.
            if entries:
                self.tables.merge(entries, entries[-1].rows[-1][1].seq)
            with self._state:
                rows = [row for entry in entries for _, row in entry.rows]
                # Cached before they leave the overlay: a reader without the lock finds them in one of the two.
                newest = [row for row in rows if self._overlay.get(row.id) is row]
                self._cache.put(newest)
                for row in newest:
                    del self._overlay[row.id]
                for _ in entries:
                    self._unmerged.popleft()
                self._merges += 1
                self._unmerged_rows -= size
                self._unmerged_bytes -= sum(len(row.value or "") for row in rows)
                self._merged_since_trim += size
        return self._unmerged_rows

    def run_upkeep(self, *, is_quiet: bool) -> None:
        """Update the index and the id filter; with `is_quiet`, also read the whole file once and release memory."""
        self._index.run_upkeep(is_quiet=is_quiet)
        self.build_id_filter()
        if is_quiet and not self.tables.is_read:
            self.tables.read_all()
        if is_quiet and self._merges != self._merges_at_release and not self._unmerged_rows:
            merges = self._merges
            if self.tables.release_memory():
                self._merges_at_release = merges

    def trim(self, after: int = 10_000) -> None:
        """Delete old versions, deletions and calls, if at least `after` rows were merged since the last time."""
        if self._merged_since_trim >= after:
            self._merged_since_trim = 0
            self.tables.trim(self.history_kept, self.clock.now() - _REPEAT_WINDOW, CALLS_KEPT)

    def build_id_filter(self) -> None:
        """Build the filter of known ids if there is none with room; a background thread does it for a large file."""
        if self._filter is not None and not self._filter.is_full:
            return
        with self._state:
            self._newcomers = list(self._overlay)
        fresh = BloomFilter(self.tables.count() + len(self._overlay))
        for record_id in self.tables.all_ids():
            fresh.add(record_id)
        with self._state:
            for record_id in self._newcomers:
                fresh.add(record_id)
            self._filter, self._newcomers = fresh, None

    def close(self) -> None:
        """Merge what is left and close the file; what has no file is over with it."""
        if self.tables.path is not None:
            self.settle()
        self._index.close()
        if self.tables.path is not None and self.tables.count_log() > _LONG_LOG:
            self.trim(after=1)
        with self._commit_lock:
            self.tables.close()
            if self.journal is not None:
                self.journal.close()

    @property
    def unmerged(self) -> int:
        """How many rows DuckDB does not have yet."""
        return self._unmerged_rows

    @property
    def is_full(self) -> bool:
        """Whether the overlay has grown so large that it should be merged even while someone is asking."""
        return self._unmerged_rows >= _OVERLAY_ROWS or self._unmerged_bytes >= _OVERLAY_BYTES

    # -- reading

    def newest(self, record_id: str) -> Row | None:
        """Return the newest row of an id, a deletion perhaps, or `None` if the id is new."""
        row = self._overlay.get(record_id) or self._cache.get(record_id)
        if row is not None or not self._may_have(record_id):
            return row
        return self._fetch([record_id]).get(record_id)

    def get(self, scope: Scope, keys: Sequence[str]) -> list[tuple[Row, float | None]] | None:
        """Return the live rows of keys if all can be told without a look into the file, else `None`."""
        now = self.clock.now()
        pairs: list[tuple[Row, float | None]] = []
        for key in keys:
            record_id = scope.record_id(key)
            row = self._overlay.get(record_id) or self._cache.get(record_id)
            if row is None:
                if self._may_have(record_id):
                    return None
            elif row.is_live(now):
                pairs.append((row, None))
        return pairs

    def live_ids(self, prefix: str) -> list[str]:
        """Return ids of live records in the scopes that start so."""
        return self._index.ids_below(prefix, self.clock.now())

    def versions(self, scope: Scope, key: str) -> list[Row]:
        """Return the kept versions of a key, oldest first."""
        record_id = scope.record_id(key)
        entries = self._pending()
        pending = [row for entry in entries for _, row in entry.rows if row.id == record_id]
        return [*versions_of([*self.tables.history(scope, key), *pending]).values()][-self.history_kept :]

    def query(self, query: Query) -> tuple[list[tuple[Row, float | None]], int]:
        """Return the live rows that match, with scores in a search, and their number."""
        if query.give == "count":
            return [], self._index.count(query, self.clock.now())
        if query.text is not None or query.vector is not None:
            return self._search(query)
        if query.keys is not None:
            assert query.scope is not None, "keys need a scope"
            ids = [query.scope.record_id(key) for key in query.keys]
            rows = self._live_rows(ids)
        elif query.limit is None:
            rows = self._read_consistent(query)
        else:
            rows = self._live_rows(self._index.ids(query, self.clock.now()))
        return [(row, None) for row in rows], len(rows)

    def table(self, query: Query) -> bytes:
        """Return all live records of a scope, or of all, as a Parquet file."""
        return self._ask_whole(self.tables.table, query)

    def tags(self, query: Query) -> dict[str, int]:
        """Return how many live records of a scope, or of all, have each tag."""
        return self._ask_whole(self.tables.tags, query)

    def _ask_whole(self, ask: Callable[[str, Sequence[Row], int], _T], query: Query) -> _T:
        prefix = query.scope.prefix if query.scope is not None else ""
        # Nothing is merged meanwhile, so the file and the overlay of this moment are all there is, each row once.
        with self._merge_lock:
            return ask(prefix, self._newest_rows()[1], self.clock.now())

    def calls(self, query: CallQuery) -> list[str]:
        """Return records of tool calls as JSON texts."""
        pending = [row for entry in self._pending() for _, row in entry.rows if row.op == "call"]
        calls = dict(self.tables.calls(query))
        for row in pending:
            # A later record replaces the earlier one and takes a place at the end.
            calls.pop(row.key, None)
            if row.value is not None and query.matches(json.loads(row.value)):
                calls[row.key] = row.value
        return list(newest_of(list(calls.values()), query.limit))

    def info(self) -> dict[str, Any]:
        """Return facts for a status card."""
        return {
            "backend": "duckdb",
            "place": str(self.tables.path or ":memory:"),
            "records": self._index.total(),
            "vectors": True,
            "notices": list(self.notices),
            "unmerged": self._unmerged_rows,
            "changes": self._seq,
        }

    # -- inside: writing

    def _decide(self, stage: WriteBatch, request: WriteRequest) -> tuple[CommitOutcome, tuple[tuple[int, Row], ...]]:
        try:
            return stage.decide(request.changes)
        except MemoryDamaged:
            raise
        except NbtoolsError as exc:
            return exc, ()
        except (ArithmeticError, AssertionError, TypeError, ValueError) as exc:
            # Only its own client making sends such a change; the others of the group have nothing to do with it.
            return InvalidArguments(f"A change cannot be decided: {type(exc).__name__}: {exc}"), ()

    def _clean(self, entry: JournalEntry, before: Sequence[JournalEntry]) -> JournalEntry:
        """Return an entry without forgotten values, and remember the values that this entry forgets."""
        for _, row in entry.rows:
            if row.op == "forget":
                self._forgetting.add(entry.request)
                new = [one for some in (*self._pending(), *before, entry) for _, one in some.rows]
                old = [*self.tables.history(row.scope, row.key), *new]
                texts = [one.value for one in old if one.id == row.id and one.value is not None]
                self._erasures.add(Erasure(row.key, texts))
        return JournalEntry(entry.request, tuple((n, self._without_forgotten(row)) for n, row in entry.rows))

    def _without_forgotten(self, row: Row) -> Row:
        if row.value is None or row.op != "call":
            return row
        return row._replace(value=self._erasures.clean(row.value))

    def _store(self, entries: list[JournalEntry], seq: int) -> NbtoolsError | None:
        if self.journal is not None:
            was_broken = self.journal.is_broken
            try:
                self.journal.append(entries)
            except OSError as exc:
                if self.journal.is_broken and not was_broken:
                    why = f"The change may be half written, and could not be taken back: {exc.strerror or exc}."
                    return outcome_unknown(why, entries[-1].request)
                return MemoryWriteFailed(
                    f"The change was not stored: {exc.strerror or exc}.",
                    hint="make room on the disk, then repeat it",
                    retryable=True,
                )
        self._publish(entries, seq)
        return None

    def _publish(self, entries: Sequence[JournalEntry], seq: int) -> None:
        with self._state:
            rows = self._add_unmerged(entries)
            for row in rows:
                if self._filter is not None:
                    self._filter.add(row.id)
                if self._newcomers is not None:
                    self._newcomers.append(row.id)
            self._seq = seq
        for entry in entries:
            self._requests[entry.request] = None
        while len(self._requests) > self._remembered:
            self._has_forgotten = True
            del self._requests[next(iter(self._requests))]
        self._index.note(rows, seq)

    def _add_unmerged(self, entries: Sequence[JournalEntry]) -> list[Row]:
        """Make entries visible that are in the journal and not in DuckDB; return their rows of records."""
        rows = [row for entry in entries for _, row in entry.rows]
        records = [row for row in rows if row.op != "call"]
        self._overlay.update((row.id, row) for row in records)
        self._unmerged.extend(entries)
        self._unmerged_rows += len(rows)
        self._unmerged_bytes += sum([len(row.value or "") for row in rows])
        return records

    def _find_stored(self, request: WriteRequest) -> list[ChangeOutcome] | None:
        """Return what became of a request that was stored before, or `None` if it was not."""
        # A new one is looked for as well: what was sent before a connection broke may arrive behind its repetition.
        if request.request_id not in self._requests and (request.is_new or not self._has_forgotten):
            return None
        rows = [pair for entry in self._pending() if entry.request == request.request_id for pair in entry.rows]
        rows = rows or self.tables.rows_of_request(request)
        if not rows:
            return None
        done: list[ChangeOutcome] = []
        for index, change in enumerate(request.changes):
            mine = [row for where, row in rows if where == index]
            if change.kind in ("delete", "clear"):
                done.append(ChangeOutcome(None, len(mine)))
            elif change.kind == "forget":
                self._forgetting.add(request.request_id)  # The files may not have been written again yet.
                done.append(ChangeOutcome(None, mine[0].version if mine else 0))
            else:
                done.append(ChangeOutcome(mine[0] if mine and change.kind != "call" else None, 1))
        return done

    def _replay(self, journal: Journal | None) -> int:
        """Load the entries of the journal that are not merged; return the time of their newest row."""
        newest = 0
        for entry in journal.replay(self._seq) if journal is not None else ():
            rows = [(index, row) for index, row in entry.rows if row.seq > self._seq]
            missing = rows[0][1].seq - self._seq - 1
            if missing:
                self.notices.append(f"{missing} of the last changes could not be read from the journal.")
            self._seq = rows[-1][1].seq
            self._add_unmerged([JournalEntry(entry.request, tuple(rows))])
            self._requests[entry.request] = None
            newest = max(newest, *(row.updated for _, row in rows))
        self.notices += journal.notices if journal is not None else ()
        return newest

    # -- inside: reading

    def _pending(self) -> list[JournalEntry]:
        with self._state:
            return list(self._unmerged)

    def _may_have(self, record_id: str) -> bool:
        ids_seen = self._filter
        return ids_seen is None or ids_seen.may_have(record_id)

    def _newest_rows(self) -> tuple[int, list[Row]]:
        with self._state:
            return self._seq, list(self._overlay.values())

    def _fetch(self, ids: Sequence[str]) -> dict[str, Row]:
        """Read rows from DuckDB, and cache them unless something was merged meanwhile that makes them old."""
        merges = self._merges
        rows = {row.id: row for row in self.tables.fetch(ids)}
        with self._state:
            if merges == self._merges and not merges % 2:
                self._cache.put(row for row in rows.values() if row.id not in self._overlay)
        return rows

    def _rows(self, ids: Sequence[str]) -> list[Row]:
        """Return the newest rows of ids that were written once, in their order, deletions included."""
        here = {i: row for i in ids if (row := self._overlay.get(i) or self._cache.get(i)) is not None}
        missing = [i for i in ids if i not in here and self._may_have(i)]
        if missing:
            here |= {row.id: row for row in self._index.rows(missing)}
            # Deleted rows are in the file alone.
            missing = [i for i in missing if i not in here]
        if missing:
            here |= self._fetch(missing)
        return [here[i] for i in ids if i in here]

    def _live_rows(self, ids: Sequence[str]) -> list[Row]:
        now = self.clock.now()
        return [row for row in self._rows(ids) if row.is_live(now)]

    def _read_consistent(self, query: Query) -> list[Row]:
        """Return all matching rows as of one moment: tried again if anything of it changed meanwhile."""
        for _ in range(5):
            rows = self._as_of(query)
            if rows is not None:
                return rows
        with self._commit_lock:
            rows = self._as_of(query)
            assert rows is not None, "nothing changes while nobody commits"
            return rows

    def _as_of(self, query: Query) -> list[Row] | None:
        seq, now = self._seq, self.clock.now()
        ids = self._index.ids(query, now)
        rows = self._rows(ids)
        if len(rows) < len(ids) or any(row.seq > seq for row in rows):
            return None
        return [row for row in rows if row.is_live(now)]

    def _search(self, query: Query) -> tuple[list[tuple[Row, float | None]], int]:
        most, words, near = query.most_found, None, None
        if query.text is not None:
            words = self._index.search(query, self.clock.now())
        if query.vector is not None:
            near = self._nearest(query, query.vector, most if words is None else _NEAREST)
        scores = dict(blended(words, near, most))
        pairs: list[tuple[Row, float | None]] = [(row, scores[row.id]) for row in self._live_rows(list(scores))]
        return pairs, len(pairs)

    def _nearest(self, query: Query, vector: Sequence[float], most: int) -> list[tuple[str, float]]:
        prefix = query.scope.record_id(query.prefix) if query.scope is not None else ""
        # Some may be due, or have other tags.
        most = max(2 * most, _NEAREST)
        with self._state:
            fresh = [row for row in self._overlay.values() if row.id.startswith(prefix)]
        near = dict(self.tables.near(vector, prefix, [row.id for row in fresh], most))
        near |= {row.id: cosine(vector, row.vector) for row in fresh if row.vector}
        best = sorted(near, key=lambda record_id: -near[record_id])[:most]
        return [(row.id, near[row.id]) for row in self._live_rows(best) if matches(row, query)]


def _not_erased(exc: OSError) -> MemoryWriteFailed:
    return MemoryWriteFailed(
        f"The value is forgotten, but parts of it remain in the memory's files: {exc.strerror or exc}.",
        hint="make room on the disk, then forget it again; it is tried again when the memory is opened, too",
        retryable=True,
    )
