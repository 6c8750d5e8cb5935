"""Optional parts: imported where they are used, named clearly when they are missing."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any, Self, TypeVar, cast

from nbtools.errors import MissingExtra, circumstances

T = TypeVar("T")


class _Heavy(ModuleType):
    """A module that takes long to import, and is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        module = sys.modules.get(self.__name__)
        if module is None or getattr(module.__spec__, "_initializing", False):
            # Another thread may still be importing it: this waits for that one.
            module = importlib.import_module(self.__name__)
        return getattr(module, name)


# What SQL and the memory work with: it stands at the head of a file as any import, and costs nothing there.
duckdb, sqlglot, exp = map(_Heavy, ("duckdb", "sqlglot", "sqlglot.expressions"))
pd, np, pa, pc = map(_Heavy, ("pandas", "numpy", "pyarrow", "pyarrow.compute"))


def need(module: str, *, extra: str, why: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Parameters
    ----------
    module
        Dotted name of the module, such as ``"mcp.server"``.
    extra
        The extra of ``nbtools-kit`` that installs it.
    why
        The feature that needs it, as the start of a sentence ("Serving tools over MCP").

    Raises
    ------
    MissingExtra
        The package is not installed; the hint is the exact install line.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        # A package that is there but lacks one of its own dependencies is another mistake: let that one speak.
        if exc.name is None or not f"{module}.".startswith(f"{exc.name}."):
            raise
        raise MissingExtra(
            f"{why} needs the package {module.partition('.')[0]!r}, which is not installed.",
            hint=f"pip install 'nbtools-kit[{extra}]'",
            tried=f"importing {module}",
        ) from None


def has(module: str) -> bool:
    """Tell whether a module could be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it stands in
        return False


class ByClassName(dict[type, T]):
    """A mapping from classes that are given by their full names, so that none is imported before it is asked for.

    Parameters
    ----------
    values
        Dotted name of each class, with the module that defines it, to its value.

    Examples
    --------
    >>> from fractions import Fraction
    >>> ByClassName({"fractions.Fraction": 1, "decimal.Decimal": 2})[Fraction]
    1
    """

    def __init__(self, values: Mapping[str, T]) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, key: type) -> T:
        """Find the value of a class by its name, once."""
        self[key] = value = self._values[f"{key.__module__}.{key.__qualname__}"]
        return value

    def __contains__(self, key: object) -> bool:
        """Tell whether a class has a value."""
        return isinstance(key, type) and f"{key.__module__}.{key.__qualname__}" in self._values

    def __iter__(self) -> Iterator[type]:
        """Import all classes, and give them."""
        import pkgutil

        return (pkgutil.resolve_name(name) for name in self._values)


def class_among(value: object, names: Mapping[str, Collection[str]]) -> str:
    """Return package and class of a value, such as ``"pandas.DataFrame"``, or of what its class is derived from.

    Parameters
    ----------
    value
        Anything.
    names
        Names of classes by their package, of which none is imported; the answer is empty for a value of no such class.

    Examples
    --------
    >>> from fractions import Fraction
    >>> class_among(Fraction(1), {"fractions": {"Fraction"}}), class_among(1, {"fractions": {"Fraction"}})
    ('fractions.Fraction', '')
    """
    classes = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__)
    return next((f"{package}.{name}" for package, name in classes if name in names.get(package, ())), "")


def facade(package: str) -> Callable[[str], Any]:
    """Return a module-level ``__getattr__`` that imports a public name on first use, and leaves it in the package.

    What the package imports below ``if TYPE_CHECKING:`` is what it offers: the source is read at the first name that is
    asked for, so that each name stands in one place for programs and for type checkers.

    Parameters
    ----------
    package
        Name of the package the attribute is read from.
    """

    @functools.cache
    def table() -> dict[str, tuple[str, str]]:
        import ast

        from nbtools.texts.python_tree import parse_python

        spec = importlib.util.find_spec(package)
        source = "" if spec is None else cast("Any", spec.loader).get_source(package)
        blocks = [node for node in parse_python(source).body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        return {a.asname or a.name: (str(node.module), a.name) for node in imports for a in node.names}

    def __getattr__(name: str) -> Any:  # noqa: N807 - the interpreter looks for exactly this name
        # The import system asks for names such as __path__ of any module, and for each module that is to be imported
        # from a package. No source is read for those, and no words of others: small processes ask for nothing else.
        folders = () if name.startswith("__") else getattr(sys.modules[package], "__path__", ())
        if not name.startswith("__") and PathFinder.find_spec(f"{package}.{name}", folders) is None:
            if name in table():
                module, inner = table()[name]
                value = getattr(importlib.import_module(module), inner)
                setattr(sys.modules[package], name, value)
                return value
            from nbtools.texts.other_words import raise_missing

            raise_missing(package, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__


class OtherModules:
    """The last finder: it finds nothing, and says of a module that only others have what it is here."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> None:
        """Raise the error for a module directly below the package that is a word of others."""
        package, _, name = fullname.rpartition(".")
        if package == "nbtools":
            from nbtools.texts.other_words import hint_for_name

            if hint := hint_for_name(name, "nbtools."):
                raise ModuleNotFoundError(f"No module named {fullname!r}. {hint}", name=fullname)


class ClosedAtEnd:
    """Something that the end of a ``with`` block closes."""

    close: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class until_closed(functools.cached_property[T]):  # noqa: N801 - a decorator, named as such
    """An attribute that is made once, at its first use, while its owner is open.

    The owner has a ``_lock`` and a ``check_open()``, and takes such attributes out of its ``__dict__`` when it closes.
    A build that failed is tried again at the next use.
    """

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> T:  # type: ignore[override]  # none asks the class
        if instance is None:
            return cast("T", self)
        with instance._lock:  # noqa: SLF001 - a part of the owner
            instance.check_open()
            with circumstances():  # a part is imported where it is first used
                value: T = super().__get__(instance, owner)
            return value
