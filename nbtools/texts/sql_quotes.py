"""Names and texts as SQL writes them: in quotes, of which those inside are doubled."""

from __future__ import annotations

BACKTICKS = frozenset({"bigquery", "mariadb", "mysql", "spark"})
"""Dialects that quote names in backticks; all others take double quotes."""


def quote_identifier(name: str, dialect: str = "duckdb") -> str:
    """Return a name in the quotes of a dialect.

    Examples
    --------
    >>> print(quote_identifier('a "b" c'), quote_identifier("a", "mysql"))
    "a ""b"" c" `a`
    """
    mark = "`" if dialect in BACKTICKS else '"'
    return mark + name.replace(mark, mark * 2) + mark


def quote_text(text: str) -> str:
    """Return a text in single quotes.

    Examples
    --------
    >>> quote_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
