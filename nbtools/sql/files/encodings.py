"""Encodings: copies in UTF-8 of texts in any other one that Python knows, for engines that read only UTF-8."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import unicodedata
import weakref
from pathlib import Path

from nbtools.errors import LimitExceeded, SqlFailed, SqlInvalid, did_you_mean
from nbtools.ground.folder import draft_in
from nbtools.ground.paths import identity_of
from nbtools.sql.engines.protocol import QueryControl
from nbtools.sql.engines.temp_dirs import make_temp_dir
from nbtools.sql.files.first_bytes import FirstBytes, open_packed
from nbtools.texts.parsing import codec_of

# What DuckDB reads itself, by the name that Python has for it, and by its own.
_NATIVE = {"utf-8": "utf-8", "utf-8-sig": "utf-8", "iso8859-1": "latin-1", "ascii": "utf-8"}
# Those that are met; Python knows more.
_MET = (
    "utf-8 cp1252 cp1250 cp1251 latin-1 shift_jis cp932 euc_jp euc_kr gb18030 big5 cp850 cp437"
    " utf-16 utf-16-le utf-16-be"
)
_SUCH = "Such as 'cp1252', 'shift_jis', 'gb18030' or 'utf-16'; a file has one."
# Where the usual letters of a country end, by their first byte, in its own standard.
_USUAL = {
    "shift_jis": ("shift_jis", 0x98),
    "cp932": ("shift_jis", 0x98),
    "euc_jp": ("euc_jp", 0xD0),
    "euc_kr": ("euc_kr", 0xC9),
    "gb18030": ("gb2312", 0xD8),
    "big5": ("big5", 0xC7),
}
_JAPAN = frozenset({"shift_jis", "euc_jp"})
_KANA = re.compile("[\u3040-\u30ff]")
_AT_ONCE = 1 << 20
_MARK = "\ufeff"


def native_name(encoding: str) -> str | None:
    """Return DuckDB's name of an encoding; `None` for one that it does not read.

    Raises
    ------
    SqlInvalid
        No documents have it.

    Examples
    --------
    >>> native_name("Latin1"), native_name("shift_jis")
    ('latin-1', None)
    """
    codec = codec_of(encoding)
    if codec is None:
        hint = did_you_mean(encoding, _MET.split(), _SUCH)
        raise SqlInvalid(f"there is no encoding {encoding!r} of documents.", hint=hint)
    return _NATIVE.get(codec.name)


def likely_encodings(path: Path, form: str) -> tuple[str, ...]:
    """Return the encodings in which a text may be, the likeliest first; none for what is not a text in one of them.

    Parameters
    ----------
    path
        The file.
    form
        What its first bytes say about its form.
    """
    with open_packed(path, form) as file:
        return likely_in(file.read(_AT_ONCE))


def likely_in(head: bytes) -> tuple[str, ...]:
    """Return the encodings in which a text that begins so may be, the likeliest first; see `likely_encodings`."""
    if b"\0" in head:  # not a text, or one in UTF-16, of which the first bytes tell
        return ()
    # The end may be half a letter.
    head = head[: head.rfind(b"\n") + 1] or head
    scores = {}
    lines = [line for line in head.split(b"\n") if not line.isascii()]
    fits = sum("\ufffd" not in line.decode("utf-8", "replace") for line in lines)
    # Half a letter here and there may look like UTF-8 by chance.
    if len(lines) / 4 <= fits < len(lines):
        return ()
    for encoding in _MET.partition(" utf-16")[0].split():
        with contextlib.suppress(UnicodeError):
            scores[encoding] = _likeness(head.decode(encoding), encoding)
    best = sorted(scores, key=lambda name: -scores[name])
    return ("utf-8", *(name for name in best if name != "utf-8")) if "utf-8" in scores else tuple(best)


def _likeness(text: str, encoding: str) -> float:
    """Return how much of what is not ASCII looks like words, from 0 to 1."""
    odd = good = 0.0
    has_kana = _KANA.search(text) is not None
    for before, letter, after in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        if letter.isascii():
            odd += letter < " " and letter not in "\t\r\n"
            continue
        odd += 1
        # The sign of a currency is likelier than a letter by itself.
        good += 0.6 if unicodedata.category(letter) == "Sc" else 0
        latin = letter < "\u0250"
        near = [each for each in (before, after) if each.isalpha()]
        if letter.isalpha() and all(each.isascii() or (each < "\u0250") == latin for each in near):
            # Letters of the Latin kind stand among those of ASCII, and no others do.
            good += 1 if latin == any(each.isascii() for each in near) else 0.5 if latin else 0
            good -= 0 if letter < "\u3040" else _doubt(letter, encoding, has_kana=has_kana)
    return good / odd if odd else 1.0


def _doubt(letter: str, encoding: str, *, has_kana: bool) -> float:
    """Return how odd a letter of East Asia is for the country of an encoding, from 0 to 1."""
    own, last = _USUAL.get(encoding, (encoding, 0))
    if _KANA.match(letter):  # which other countries' encodings have too, and no texts
        return own not in _JAPAN
    try:
        is_usual = letter.encode(own)[0] < last
    except UnicodeError:
        return 1
    # A text of Japan has kana beside them.
    return (0.1 if own in _JAPAN and not has_kana else 0) if is_usual else 1


class Utf8Copies:
    """Copies of files, for as long as the session; a file that has changed is copied again.

    Parameters
    ----------
    most_bytes
        The most that one copy may have.

    Attributes
    ----------
    own
        The folder of the copies that only a person's queries see.
    shared
        The folder of the copies that any query sees.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        folder = make_temp_dir()
        self._finalizer = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.own, self.shared = folder / "own", folder / "shared"
        self.own.mkdir()
        self.shared.mkdir()

    def copy(
        self, path: Path, encoding: str, seen: FirstBytes, control: QueryControl, *, shared: bool, growing: bool = False
    ) -> Path:
        """Return a copy of a text in UTF-8.

        Parameters
        ----------
        path
            The file.
        encoding
            That of the file.
        seen
            What its first bytes say.
        control
            Ends the copying.
        shared
            Whether any query may see it.
        growing
            Whether the file may become longer meanwhile; its lines are copied as far as they are whole.

        Raises
        ------
        SqlFailed
            It is in another encoding, or it was changed meanwhile.
        LimitExceeded
            The copy would be too large.
        """
        before = identity_of(path)
        name = hashlib.sha256(repr((os.fspath(path), before, encoding)).encode()).hexdigest()[:24]
        target = (self.shared if shared else self.own) / f"{name}.txt"
        if before[1] and target.exists():
            return target
        # Of the two orders of bytes, the first bytes know which one it is.
        codec = seen.encoding if encoding == "utf-16" and seen.encoding else encoding
        try:
            with draft_in(target.parent) as draft:
                with (
                    io.TextIOWrapper(open_packed(path, seen.form), codec, newline="") as texts,
                    draft.open("w", encoding="utf-8", newline="") as draft_file,
                ):
                    rest = ""
                    while part := texts.read(_AT_ONCE):
                        control.check()
                        if growing:
                            whole, end, rest = (rest + part).rpartition("\n")
                            part = whole + end
                        if draft_file.write(part.removeprefix(_MARK)) and draft_file.tell() > self._most_bytes:
                            hint = "Save it as UTF-8, or read it with a script: %%data_analyze."
                            raise LimitExceeded(
                                f"{path.name} has more than {self._most_bytes:,} bytes in UTF-8.", hint=hint
                            )
                if identity_of(path)[0] != before[0] and not growing:
                    hint = "Ask again when the program that writes it has finished."
                    raise SqlFailed(f"{path.name} was changed while it was read.", hint=hint, retryable=True)
                draft.replace(target)
        except UnicodeError as exc:
            raise SqlFailed(f"{path.name} is not {encoding}: {exc}.", hint=_SUCH) from None
        return target
