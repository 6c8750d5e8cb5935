"""Words of others: what people know from other tools, and what it is here.

The words stand in ``other_words.toml``, once for all who look them up: pages of help, imports, attributes that a class
does not have, arguments that it does not take, options of magics and keys of files. The nearest spelling cannot help
there: ``MemoryStore`` is not a mistyped ``memory_save``.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


class OtherWord(NamedTuple):
    """What a thing of other tools is here.

    Attributes
    ----------
    words
        What others call it; with a class and a dot it is an attribute, with ``()`` the arguments of a class, and
        behind ``*`` the last word of a name.
    here
        What it is here, in a sentence.
    page
        The topic of help that says more.
    example
        Lines of Python, of a notebook or of a terminal; empty where there is nothing to show in a line.
    """

    words: tuple[str, ...]
    here: str
    page: str
    example: str = ""

    def to_text(self) -> str:
        """Return it as a page of help."""
        import textwrap

        sentence = textwrap.fill(self.here, 100, break_on_hyphens=False)
        example = f"{textwrap.indent(self.example.strip(), '  ')}\n\n" if self.example else ""
        return f"{sentence}\n\n{example}nbtools help {self.page} says more."


@functools.cache
def other_words() -> Mapping[str, OtherWord]:
    """Return what others' words are here, by the word in lower case."""
    import importlib.resources
    import tomllib

    text = importlib.resources.files("nbtools.texts").joinpath("other_words.toml").read_text(encoding="utf-8")
    entries = [OtherWord(**{**entry, "words": tuple(entry["words"])}) for entry in tomllib.loads(text)["word"]]
    return {word.casefold(): entry for entry in entries for word in entry.words}


def hint_for(word: str, owner: str = "") -> str | None:
    """Return the sentence on a word of others, `None` for one that no other tool uses.

    Parameters
    ----------
    word
        As it was written.
    owner
        Where it was looked for, such as ``"Registry."`` or ``"%sql "``.
    """
    entry = other_words().get(f"{owner}{word}".casefold())
    return None if entry is None else entry.here


class KnowsOtherWords:
    """A class whose missing attributes say where the thing is that others call so."""

    if not TYPE_CHECKING:  # a type checker would take any attribute for one that is there

        def __getattr__(self, name: str) -> Any:
            """Raise the error of a missing attribute, with what it is here."""
            if name.startswith("_"):
                return object.__getattribute__(self, name)
            owners = [base.__name__ for base in type(self).__mro__]
            hint = next(filter(None, (hint_for(name, f"{owner}.") for owner in owners)), None)
            try:
                # Asked once more, so that the error is the one of a property that failed, where there is one.
                return object.__getattribute__(self, name)
            except AttributeError as exc:
                if exc.obj is not self or exc.name != name:
                    raise
            from nbtools.errors import did_you_mean

            public = sorted(word for word in {*dir(type(self)), *vars(self)} if not word.startswith("_"))
            hint = hint or did_you_mean(name, public, f"It has {', '.join(public)}.")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}. {hint}")


_WRONG_ARGUMENTS = r"(\w+)\(\) (?:got an unexpected keyword argument '(\w+)'|missing|takes|got multiple)"


def with_hint(problem: TypeError, function: Callable[..., Any], name: str = "") -> TypeError:
    """Return the error of arguments that a function does not take, with those that it takes; any other as it is.

    `name` is what the caller wrote, where that is not the function's own.
    """
    import inspect

    from nbtools.errors import did_you_mean

    match = re.search(_WRONG_ARGUMENTS, str(problem))
    if match is None or match[1] != function.__name__:
        return problem
    text = str(problem).replace(function.__qualname__, name or function.__qualname__)
    owner = (name or function.__qualname__).removesuffix(".__init__")
    names = [parameter for parameter in inspect.signature(function).parameters if parameter != "self"]
    hint = hint_for(f"{owner}()") or hint_for(match[2] or "")
    hint = hint or did_you_mean(match[2] or "", names, f"It takes {', '.join(names)}.")
    return TypeError(f"{text}. {hint}")


def check_names(arguments: Mapping[str, Any], names: Iterable[str], function: str) -> None:
    """See to it that a function takes the arguments that it hands on later, where an error would be of someone else.

    Raises
    ------
    TypeError
        It does not take one of them.
    """
    from nbtools.errors import did_you_mean

    for name in arguments.keys() - {*names}:
        hint = hint_for(name) or did_you_mean(name, names, f"It takes {', '.join(names)}.")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. {hint}")


def explains_arguments(function: F) -> F:
    """Have a function say what it takes when it is given arguments that it does not take."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as exc:
            # One that is raised further in is about something else.
            if exc.__traceback__ is None or exc.__traceback__.tb_next is not None:
                raise
            raise with_hint(exc, function) from None

    return wrapper  # type: ignore[return-value]  # the same arguments


def knows_other_arguments(cls: type[T]) -> type[T]:
    """Have a class say how it is made when it is given arguments that it does not take."""
    cls.__init__ = explains_arguments(cls.__init__)  # type: ignore[method-assign]  # takes the same arguments
    return cls


def hint_for_name(name: str, owner: str) -> str | None:
    """Return the sentence on a name of others, or on what such a name ends in: ``AsyncMemory`` on memories."""
    *before, last = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name) or [""]
    return hint_for(name) or hint_for(name, owner) or (hint_for(f"*{last}") if before else None)


def raise_missing(package: str, name: str) -> NoReturn:
    """Raise the error for a name that a package does not have.

    ``from package import name`` asks for the attribute twice, and of an `AttributeError` it tells nothing: the import
    system, which asks first, is given an `ImportError`.
    """
    hint = hint_for_name(name, f"{package}.") or f"dir({package}) lists what there is, and nbtools help explains it."
    if sys._getframe(2).f_code.co_name == "_handle_fromlist":  # noqa: SLF001 - the code that asks the package
        raise ImportError(f"cannot import name {name!r} from {package!r}. {hint}", name=package)
    raise AttributeError(f"module {package!r} has no attribute {name!r}. {hint}")
