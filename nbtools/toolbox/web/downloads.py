"""Files of the web and of object stores, kept in a folder while they stay the same: what SQL over URLs reads.

``http`` and ``https`` go through `fetch`, so every address is judged when it is connected to; ``s3``, ``gs`` and ``az``
go through obstore, whose account and endpoint come from the environment and never from a URL. Before each use the
server is asked whether the file has changed (ETag, or the time of its last change). A changed file gets another name:
a reader of the old one finishes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlsplit

from nbtools.errors import FileMissing, InvalidArguments, LimitExceeded, NetworkError, PermissionDenied, first_line
from nbtools.ground.folder import draft_in
from nbtools.ground.home import make_private
from nbtools.ground.lazy import need
from nbtools.ground.trimming import trim
from nbtools.texts.redaction import conceal

if TYPE_CHECKING:
    from nbtools.sql.engines.protocol import QueryControl

_WHY = "Reading files of object stores"
_STORES = frozenset({"s3", "gs", "az"})
# Endings by which an engine knows what a file holds, with a compression behind them.
_ENDING = re.compile(r"\.[a-z0-9]{2,8}(?:\.(?:gz|zst))?\Z", re.IGNORECASE)
_TYPES = {
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/json": ".json",
    "application/x-ndjson": ".ndjson",
    "application/vnd.apache.parquet": ".parquet",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
}
_PIECE = 1 << 20
_LONGEST_S = 3_600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _StoredFile:
    """What is known of a file that was fetched: its name in the folder, and what tells that it is still the same."""

    name: str
    marks: Mapping[str, str]


class Downloads:
    """Files by their URLs, in a folder.

    Parameters
    ----------
    folder
        Where they are kept.
    allow_private
        Whether private addresses may be reached, as for the web tools.
    places
        URLs below which files may be fetched; `None` for everywhere.
    most_bytes
        Bytes of one file.
    kept_bytes
        Bytes of all files together, beyond which those go that were used longest ago.
    """

    def __init__(
        self,
        folder: Path,
        *,
        allow_private: bool = False,
        places: Sequence[str] | None = None,
        most_bytes: int = 2_000_000_000,
        kept_bytes: int = 8_000_000_000,
    ) -> None:
        self.folder = folder
        self.places = None if places is None else tuple(map(_canonical, places))
        self._allow_private = allow_private
        self._most = most_bytes
        self._kept_bytes = kept_bytes
        with contextlib.suppress(OSError):
            # What confines a process opens folders that are there.
            make_private(folder)

    def get(self, url: str, *, seconds: float | None, control: QueryControl | None = None) -> Path:
        """Return the file of a URL as it is now, fetched unless it is here already.

        Parameters
        ----------
        url
            The URL.
        seconds
            How long it may take; `None` for an hour.
        control
            Ends it.

        Raises
        ------
        PermissionDenied
            The URL, an address it leads to, or the account may not be used.
        FileMissing, HttpError, NetworkError, CallTimeout
            It does not exist, or is not available (in time).
        LimitExceeded
            It is larger than it may be, or no space is left.
        """
        url = _canonical(url)
        self._judge(url)
        make_private(self.folder)
        key = _key(url)
        stored = self._stored(key)
        with draft_in(self.folder) as draft:
            with draft.open("wb") as file:
                sink = _BoundedFile(file, self._most, control)
                is_object = url.partition("://")[0] in _STORES
                work = self._from_store if is_object else self._from_web
                # Asked each time whether it has changed; only what has is sent again.
                download = work(url, stored, sink, _LONGEST_S if seconds is None else seconds)
            if download is None:
                assert stored is not None
                path = self.folder / stored.name
                # What is used is the last to go when there is too much.
                os.utime(path)
                return path
            # Under a new name: a query that runs reads on in the file that it has open.
            path = self.folder / f"{key}-{secrets.token_hex(4)}{download.name}"
            draft.replace(path)
        with draft_in(self.folder) as note:
            note.write_text(
                json.dumps({"url": conceal(url), "name": path.name, "marks": dict(download.marks)}), "utf-8"
            )
            note.replace(self.folder / f"{key}.note")
        trim(self.folder, seconds=math.inf, most_bytes=self._kept_bytes, least=0, may_go=lambda each: each != path)
        return path

    def path_of(self, url: str) -> Path:
        """Return where the file of a URL is, or would be if it were fetched, which it is not.

        Raises
        ------
        PermissionDenied
            It is not below the places that may be read.
        """
        url = _canonical(url)
        self._judge(url)
        stored = self._stored(_key(url))
        return self.folder / (f"{_key(url)}{_ending(url)}" if stored is None else stored.name)

    def _judge(self, url: str) -> None:
        if self.places is not None and not any(_is_below(url, allowed) for allowed in self.places):
            raise PermissionDenied(
                f"{conceal(url)} is not below the places that may be read.",
                hint="A person names such places in the setting sql_places.",
            )

    def _stored(self, key: str) -> _StoredFile | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads((self.folder / f"{key}.note").read_text("utf-8"))
            if (self.folder / Path(note["name"]).name).is_file():
                return _StoredFile(name=Path(note["name"]).name, marks=note["marks"])
        return None

    def _from_web(self, url: str, stored: _StoredFile | None, sink: _BoundedFile, seconds: float) -> _StoredFile | None:
        from nbtools.toolbox.policies import WebPolicy
        from nbtools.toolbox.web.fetch import fetch

        policy = WebPolicy(allow_private=self._allow_private, timeout=seconds, body_bytes=self._most)
        answer = fetch(
            policy,
            "GET",
            url,
            headers=dict(stored.marks) if stored else {},
            judge=self._judge,
            into=sink,
            hold=sink.hold,
        )
        if answer.status == 304 and stored is not None:
            return None
        answer.raise_for_status()
        if answer.status != 200:
            raise NetworkError(f"{conceal(url)} was answered by {answer.status} and no file.", retryable=False)
        marks = {"If-None-Match": answer.header("ETag"), "If-Modified-Since": answer.header("Last-Modified")}
        ending = _ending(url) or _TYPES.get(answer.header("Content-Type").partition(";")[0].strip().lower(), "")
        if "gzip" in answer.header("Content-Encoding").lower():
            ending = ending.removesuffix(".gz")  # it was taken off on the way
        return _StoredFile(name=ending, marks={name: value for name, value in marks.items() if value})

    def _from_store(
        self, url: str, stored: _StoredFile | None, sink: _BoundedFile, seconds: float
    ) -> _StoredFile | None:
        obstore = need("obstore", extra="cloud", why=_WHY)
        stores = need("obstore.store", extra="cloud", why=_WHY)
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        wait = {"timeout": f"{math.ceil(seconds)}s", "connect_timeout": "10s", "allow_http": True}
        with _own_errors(url):
            store = stores.from_url(f"{scheme}://{bucket}", client_options=wait, retry_config={"max_retries": 2})
            meta = obstore.head(store, key)
            marks = {"e_tag": str(meta["e_tag"] or ""), "changed": str(meta["last_modified"])}
            if stored is not None and stored.marks == marks:
                return None
            if meta["size"] > self._most:
                raise _too_large(url, self._most)
            got = obstore.get(store, key)
            for piece in got.stream(min_chunk_size=_PIECE):
                sink(bytes(piece))
        if sink.size != meta["size"]:
            raise NetworkError(
                f"{url} has {meta['size']:,} bytes, and {sink.size:,} came.", hint="It changed meanwhile: ask again."
            )
        return _StoredFile(name=_ending(url), marks=marks)


class _BoundedFile:
    """Writes what comes to a file, no more than it may have."""

    def __init__(self, file: BinaryIO, most: int, control: QueryControl | None) -> None:
        self._file, self._most, self._control = file, most, control
        self.size = 0

    def hold(self, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Let the control call `end` while the block runs."""
        return contextlib.nullcontext() if self._control is None else self._control.attach(end)

    def __call__(self, piece: bytes) -> None:
        if self._control is not None:
            self._control.check()
        self.size += len(piece)
        if self.size > self._most:
            raise _too_large("the file", self._most)
        try:
            self._file.write(piece)
        except OSError as exc:
            what = "no space is left" if exc.errno == errno.ENOSPC else exc.strerror
            raise LimitExceeded(f"the file cannot be saved: {what}.") from exc


def _too_large(what: str, most: int) -> LimitExceeded:
    return LimitExceeded(f"{what} is larger than {most:,} bytes, which one file may have.")


def _canonical(url: str) -> str:
    """Return a URL in one spelling, by which places are compared."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in _STORES:
        from nbtools.toolbox.web.address import canonical_url

        return canonical_url(url)
    bucket, _, key = rest.partition("/")
    if not bucket or "@" in bucket or "?" in rest or "#" in rest or set(".*[\\") & set(bucket) or "//" in key:
        raise InvalidArguments(f"{url[:200]!r} does not name an object.", hint="Write s3://bucket/folder/file.parquet.")
    if {"..", "."} & set(key.split("/")) or "*" in key:
        raise InvalidArguments(f"{url[:200]!r} is a pattern or climbs.", hint="Name one object.")
    return f"{scheme.lower()}://{bucket}/{key}"


def _is_below(url: str, prefix: str) -> bool:
    """Tell whether a URL lies below a place, however a server reads it."""
    from nbtools.toolbox.web.address import servers_read

    folder = prefix if prefix.endswith("/") else prefix + "/"
    return url == prefix or all(one.startswith(folder) for one in servers_read(url))


def _key(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:32]


def _ending(url: str) -> str:
    path = urlsplit(url).path
    match = _ENDING.search(unquote(path.rpartition("/")[2]))
    return match[0].lower() if match else ""


@contextlib.contextmanager
def _own_errors(url: str) -> Iterator[None]:
    """Turn the errors of obstore into ours."""
    from obstore import exceptions

    shown_url = conceal(url)
    try:
        yield
    except FileNotFoundError as exc:
        raise FileMissing(f"{shown_url} does not exist.") from exc
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as exc:
        raise PermissionDenied(
            f"the store refuses {shown_url}: {first_line(exc)}",
            hint="Check the account of the environment; its token may have expired.",
        ) from exc
    except (exceptions.BaseError, ValueError) as exc:
        raise NetworkError(f"{shown_url} cannot be fetched: {first_line(exc)}") from exc
