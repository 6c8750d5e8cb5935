"""Files of the memory tool in an object store: ``gs://``, ``s3://`` or ``az://``, through obstore.

An edit is a conditional write (ETag or generation), so two machines that edit one file lose nothing. An answer can be
lost after the write was made, and the repeat then finds the object changed: by whom must be told apart. So each write
has an id, and an object carries the ids of its last writes as metadata; who writes on top carries them on. A write
that was refused, or whose outcome is not known, was made if its id is there.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbtools.errors import (
    ConfigInvalid,
    ConfigMissing,
    MemoryUnavailable,
    MemoryWriteFailed,
    NbtoolsError,
    NetworkError,
    PermissionDenied,
    VersionConflict,
    first_line,
    nearest,
)
from nbtools.ground.lazy import need
from nbtools.ground.telemetry import fresh_id
from nbtools.memory.files.paths import ROOT

_SCHEMES = ("gs", "s3", "az", "memory", "file")
_WHY = "Keeping memory files in an object store"
# What is worth trying again, in the words of the stores' client: it has no classes for them.
_PASSING = ("429", "503", "timed out", "timeout", "error sending request", "connection")
# Metadata of an object: the ids of its last writes. A plain word, for Azure's sake; S3 takes 2 KiB of metadata.
_WRITES = "nbtools"
_KEPT = 32


class ObjectFileStore:
    """A `nbtools.memory.files.store.FileStore` in an object store.

    Parameters
    ----------
    url
        ``gs://bucket/prefix``, ``s3://bucket/prefix`` or ``az://container/prefix``.
    store
        An obstore store to use instead of the one that the URL names; its credentials and endpoint are its own.

    Raises
    ------
    ConfigInvalid
        The URL has an unknown scheme or names nothing.
    MissingExtra
        The extra ``cloud`` is not installed.
    """

    def __init__(self, url: str, *, store: Any = None) -> None:
        scheme, _, rest = url.partition("://")
        if scheme not in _SCHEMES or scheme == "file" or (not rest.strip("/") and scheme != "memory"):
            close = None if scheme in _SCHEMES else nearest(scheme, _SCHEMES)
            raise ConfigInvalid(
                f"{url!r} is not a URL of an object store.",
                hint=f"Did you mean {close}://…?" if close else "Use gs://, s3://, az:// or file:///.",
            )
        self._obstore = need("obstore", extra="cloud", why=_WHY)
        self._errors = need("obstore.exceptions", extra="cloud", why=_WHY)
        self._url = url
        self._store = store if store is not None else self._open(url, scheme)

    def _open(self, url: str, scheme: str) -> Any:
        stores = need("obstore.store", extra="cloud", why=_WHY)
        if scheme == "memory":
            return stores.MemoryStore()
        try:
            # One short try more than the first: a notebook would rather hear of a failure than wait for minutes.
            retry = {"max_retries": 3}
            return stores.from_url(url, retry_config=retry, client_options={"timeout": "20s", "allow_http": True})
        except Exception as exc:
            raise ConfigMissing(f"{url}: {first_line(exc)}", hint="Set the credentials of that store.") from None

    # -- FileStore

    def read(self, path: str) -> tuple[str, str] | None:
        """Return the text of a file, and as its token ETag, generation and the ids of its last writes."""
        try:
            with self._translate_errors("reading", path):
                answer = self._obstore.get(self._store, _key(path))
                return bytes(answer.bytes()).decode("utf-8"), _token(answer.meta, answer.attributes)
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise MemoryWriteFailed(f"{path} is not UTF-8 text.", hint="It was not written by this tool.") from None

    def write(self, path: str, text: str, token: str | None) -> None:
        """Write an object by a conditional put, once, whatever becomes of its answer.

        Raises
        ------
        VersionConflict
            Someone else's write came before.
        NetworkError
            The store did not answer. Trying again is offered when it is certain that nothing was written.
        """
        e_tag, version, writes = ("", "", "") if token is None else token.split("\n")
        mode = {name: value for name, value in (("e_tag", e_tag), ("version", version)) if value}
        write = fresh_id()
        ids = " ".join([*writes.split(), write][-_KEPT:])
        try:
            with self._translate_errors("writing", path):
                self._obstore.put(
                    self._store, _key(path), text.encode("utf-8"), mode=mode or "create", attributes={_WRITES: ids}
                )
        except (VersionConflict, NetworkError) as exc:
            if not self._was_made(path, write, exc):
                raise

    def _was_made(self, path: str, write: str, fault: NbtoolsError) -> bool:
        """Return whether a write that ended in a fault was made all the same."""
        try:
            with self._translate_errors("reading", path):
                answer = self._obstore.get(self._store, _key(path))
        except FileNotFoundError:
            return False
        except NetworkError:
            raise NetworkError(
                f"{fault.message} Whether it was written is not known.",
                hint=f"View {path} before you try again.",
                retryable=False,
            ) from None
        return write in str(answer.attributes.get(_WRITES, "")).split()

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the sizes of all objects below a folder."""
        prefix = _key(folder)
        try:
            with self._translate_errors("listing", folder):
                metas = [meta for batch in self._obstore.list(self._store, prefix=prefix or None) for meta in batch]
        except FileNotFoundError:
            return {}
        return {
            f"{ROOT}/{meta['path']}": int(meta["size"])
            for meta in metas
            if f"{ROOT}/{meta['path']}".startswith(f"{folder}/")
        }

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects one by one; ignore those that are gone, perhaps by a delete without an answer."""
        for path in paths:
            try:
                with contextlib.suppress(FileNotFoundError), self._translate_errors("deleting", path):
                    self._obstore.delete(self._store, _key(path))
            except NetworkError:
                if self.read(path) is not None:
                    raise

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Copy every object to a free path, then delete the old ones, each if it is still what was copied.

        Raises
        ------
        VersionConflict
            An object is gone or was edited meanwhile, or a target is taken: what is not moved yet stays where it is.
        """
        moves: list[tuple[str, str, tuple[str, str]]] = []
        try:
            for source, target in pairs:
                current = self.read(source)
                if current is None:
                    raise VersionConflict(f"{source} is gone.", hint="look again")
                self.write(target, current[0], None)
                moves.append((source, target, current))
            for source, _, current in tuple(moves):
                # The stores have no conditional deletion, so this is as late as it can be.
                if self.read(source) != current:
                    raise VersionConflict(f"{source} was edited while it was moved.", hint="look again")
                moves.pop(0)  # from here on its copy may be all that is left of it
                self.delete([source])
        except Exception:
            self._take_back(moves)
            raise

    def _take_back(self, copies: Sequence[tuple[str, str, tuple[str, str]]]) -> None:
        """Delete copies whose originals are there; one that someone edited already stays."""
        for _, target, (text, _) in copies:
            copied = self.read(target)
            if copied is not None and copied[0] == text:
                self.delete([target])

    def close(self) -> None:
        """Nothing is held open between calls."""

    @contextlib.contextmanager
    def _translate_errors(self, doing: str, path: str) -> Iterator[None]:
        """Turn the client's errors into ours; an object that is not there stays a `FileNotFoundError`."""
        errors = self._errors
        try:
            yield
        except (errors.AlreadyExistsError, errors.PreconditionError):
            raise VersionConflict(f"{path} changed meanwhile.", hint="Read it again.") from None
        except FileNotFoundError as exc:
            if "NoSuchBucket" in str(exc) or "bucket does not exist" in str(exc).lower():
                raise self._unavailable(doing, exc) from None
            raise
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as exc:
            raise PermissionDenied(
                f"{doing} {path}: the store refuses the credentials: {first_line(exc)}",
                hint=f"Check the credentials for {self._url}.",
            ) from None
        except errors.BaseError as exc:
            if "404 Not Found" in str(exc):  # what is listed need not be there, so it is the bucket that is missing
                raise self._unavailable(doing, exc) from None
            if any(word in str(exc).lower() for word in _PASSING):
                raise NetworkError(f"{doing} {path}: {first_line(exc)}", hint="Try again.") from None
            raise self._unavailable(doing, exc) from None

    def _unavailable(self, doing: str, exc: Exception) -> MemoryUnavailable:
        if "404 Not Found" in str(exc) or "NoSuchBucket" in str(exc):
            return MemoryUnavailable(
                f"{doing} in {self._url}: there is no such bucket.",
                hint="Make the bucket, or check NBTOOLS_MEMORY_FILES_URL.",
            )
        return MemoryUnavailable(
            f"{doing} in {self._url}: {first_line(exc)}", hint="Check NBTOOLS_MEMORY_FILES_URL and the bucket."
        )


def _key(path: str) -> str:
    return path.removeprefix(ROOT).lstrip("/")


def _token(meta: Mapping[str, Any], attributes: Mapping[str, Any]) -> str:
    e_tag, version = meta.get("e_tag"), meta.get("version")
    if not e_tag and not version:
        # Told apart by time and size, as well as that can be.
        e_tag = hashlib.sha256(repr((meta["last_modified"], meta["size"])).encode()).hexdigest()
    return f"{e_tag or ''}\n{version or ''}\n{attributes.get(_WRITES, '')}"
