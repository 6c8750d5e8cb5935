"""What a caller asks of the kernels, checked before anything is started: pure functions with clear refusals."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from nbtools.confine import Level
from nbtools.errors import FileMissing, InvalidArguments, LimitExceeded
from nbtools.ground.paths import Roots
from nbtools.kernels.interface import OutputLimits

# It goes into file names, command lines of magics and tables.
_NAME = re.compile(r"\w[\w .:@+-]{0,63}")
# The parser of a language takes many times the size of the text.
_MAX_CODE = 64 << 20
# More is most likely a number of milliseconds.
_MAX_SECONDS = 7 * 86_400.0


def check_code(code: object) -> str:
    """Return the code, if it is text that a kernel can run.

    Raises
    ------
    InvalidArguments
        It is not text, or holds a NUL character or half of a surrogate pair.
    LimitExceeded
        It is longer than 64 MiB.
    """
    if not isinstance(code, str):
        raise InvalidArguments(f"The code is {type(code).__name__}, not text.", hint="Pass the script as a string.")
    if "\0" in code:
        line = code[: code.index("\0")].count("\n") + 1
        raise InvalidArguments(
            f"The code has a NUL character in line {line}.", hint="Remove it: no language allows it."
        )
    try:
        code.encode()
    except UnicodeEncodeError as exc:
        line = code.count("\n", 0, exc.start) + 1
        raise InvalidArguments(
            f"The code has half of a surrogate pair, {code[exc.start]!r}, in line {line}: that is not a character.",
            hint="Remove it, or write it as an escape inside a string: no language allows it in its text.",
        ) from None
    if len(code) > _MAX_CODE:
        raise LimitExceeded(
            f"The code is {len(code):,} characters long, more than {_MAX_CODE:,}.",
            hint="Put data into a file and let the script read it.",
        )
    return code


def check_seconds(value: object, name: str, *, may_be_zero: bool = False) -> float:
    """Return a duration in seconds, if it is one that makes sense: above 0, at most a week.

    Raises
    ------
    InvalidArguments
        It does not.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value):  # type: ignore[arg-type]  # narrowed by is_number
        seconds = float(value)  # type: ignore[arg-type]  # same
        if 0 < seconds <= _MAX_SECONDS or (may_be_zero and seconds == 0):
            return seconds
    raise InvalidArguments(
        f"{name}={value!r} is not a duration: give a number of seconds above 0, at most {_MAX_SECONDS:,.0f}.",
        hint=f"Use {name}=300 for five minutes.",
    )


def check_count(value: object, name: str, *, least: int = 1, may_be_none: bool = True) -> None:
    """Refuse a limit that is not a whole number from `least` on.

    Raises
    ------
    InvalidArguments
        It is none; the error names it.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not (value is None and may_be_none) and not (is_whole and value >= least):  # type: ignore[operator]  # an int
        none = ", or None for no limit" if may_be_none else ""
        raise InvalidArguments(
            f"{name}={value!r} is not a whole number from {least} on.", hint=f"Pass a whole number{none}."
        )


def check_output(limits: object) -> OutputLimits:
    """Return the limits of output, if they are some; for `None` those of a run that names none.

    Raises
    ------
    InvalidArguments
        They are no `OutputLimits`, or one of them is not a whole number.
    """
    if limits is None:
        return OutputLimits()
    if not isinstance(limits, OutputLimits):
        raise InvalidArguments(
            f"limits={limits!r} is {type(limits).__name__}, not OutputLimits.",
            hint="Pass limits=OutputLimits(text_bytes=20_000_000); it is in nbtools.kernels.",
        )
    for name, value in vars(limits).items():
        check_count(value, name, least=0, may_be_none=False)
    return limits


def check_name(name: object) -> str:
    """Return the name of a session, if it is one.

    Raises
    ------
    InvalidArguments
        It is empty, longer than 64 characters, or has characters that names do not have.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InvalidArguments(
        f"{str(name)[:80]!r} is not a name for a session.",
        hint="Use up to 64 letters, digits, spaces and . _ : @ + -, beginning with a letter or digit.",
    )


def check_level(level: object) -> Level:
    """Return the level of confinement, if it is one.

    Raises
    ------
    InvalidArguments
        It is not.
    """
    levels: tuple[Level, ...] = get_args(Level)
    if accepted := [name for name in levels if name == level]:
        return accepted[0]
    hint = f"Use one of {', '.join(levels)}."
    raise InvalidArguments(f"sandbox={level!r} is unknown.", hint=hint)


def check_folder(folder: object, roots: Roots | None) -> Path:
    """Return the working folder, resolved, if it exists and is allowed; that of this process always is.

    Raises
    ------
    FileMissing
        It does not exist.
    PathNotAllowed
        It lies outside the allowed roots.
    InvalidArguments
        It is not a folder.
    """
    if not isinstance(folder, str | Path):
        raise InvalidArguments(f"cwd={folder!r} is not a path.")
    if roots is not None and not (roots.roots and folder == roots.start()):
        path = roots.resolve(folder)
    else:
        if "\0" in str(folder):
            raise InvalidArguments("The working folder's name has a NUL character.")
        path = Path(folder).expanduser().resolve()
    if not path.exists():
        raise FileMissing(
            f"The working folder {str(folder)!r} does not exist.",
            hint="Create it first, or leave it out to work in a folder of the kernel's own.",
        )
    if not path.is_dir():
        raise InvalidArguments(f"{str(folder)!r} is a file, not a folder.", hint="Give its folder.")
    return path


def check_variables(variables: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the variables as JSON values under names that a script can use.

    Raises
    ------
    InvalidArguments
        A name is not an identifier, a value is not JSON, or two of its keys are the same as text.
    """
    values = {}
    for name, value in (check_names(variables) if variables else variables).items():
        try:
            # There and back, so that the script gets what JSON makes of it, whatever class the caller used.
            values[name] = json.loads(json.dumps(value, default=_path_as_text), object_pairs_hook=_each_once)
        except (TypeError, ValueError) as exc:
            raise InvalidArguments(
                f"The value of {name!r} is not JSON: {exc}.",
                hint="Pass text, numbers, lists and dicts; put anything else into a file.",
            ) from None
    return values


def changed_variables(variables: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note for each variable that is not equal to what JSON made of it; a path is meant as its text."""
    # NaN is not equal to itself, but has the same text.
    changed = (
        name
        for name, value in variables.items()
        if not isinstance(value, Path) and value != values[name] and repr(value) != repr(values[name])
    )
    return tuple(f"{name} is not the same as JSON: tuples are lists, and keys are text" for name in changed)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("two keys of a mapping are the same as text")
    return fields


def check_names(variables: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return the variables themselves, if a script can use their names.

    Raises
    ------
    InvalidArguments
        A name is not an identifier.
    """
    for name in variables:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidArguments(f"{name!r} cannot be the name of a variable.")
    return variables


def _path_as_text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def outside(paths: Iterable[Path], roots: Iterable[Path]) -> tuple[Path, ...]:
    """Return those of the paths that no root holds, sorted, each once.

    No link is followed: one that was put in place of a file that was judged must not open what it leads to.
    """
    folders = tuple(roots)
    whole = {Path(os.path.abspath(path)) for path in paths}  # noqa: PTH100 - resolve() would follow links
    return tuple(sorted(path for path in whole if not any(path == root or root in path.parents for root in folders)))
