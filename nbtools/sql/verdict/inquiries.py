"""``SHOW TABLES`` and ``DESCRIBE`` for engines that lack them, as a SELECT on the catalog.

The SELECT replaces the text that was written and is judged and run like any other.
"""

from __future__ import annotations

import re

from nbtools.sql.verdict.reviewed import read
from nbtools.texts.sql_quotes import quote_text

_SHOW = re.compile(r"\s*SHOW\s+(?:ALL\s+)?TABLES\s*;?\s*", re.IGNORECASE)
_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d]\w*)'
_DESCRIBE = re.compile(rf"\s*DESC(?:RIBE)?\s+(?:TABLE\s+)?({_NAME}(?:\.{_NAME})?)\s*;?\s*", re.IGNORECASE)
# Pragmas of DuckDB that only read, for which it has other words.
_PRAGMAS = (
    (re.compile(r"\s*PRAGMA\s+show_tables\s*(?:\(\s*\))?\s*;?\s*", re.IGNORECASE), "SHOW TABLES"),
    (
        re.compile(r"\s*(?:PRAGMA\s+version|CALL\s+pragma_version\s*\(\s*\))\s*;?\s*", re.IGNORECASE),
        "FROM pragma_version()",
    ),
    (
        re.compile(rf"\s*PRAGMA\s+table_info\s*\(\s*'?({_NAME}(?:\.{_NAME})?)'?\s*\)\s*;?\s*", re.IGNORECASE),
        r"DESCRIBE \1",
    ),
)
_FORMS = read("inquiries")


def asks_for_tables(sql: str) -> bool:
    """Tell whether a text is ``SHOW TABLES``."""
    return _SHOW.fullmatch(sql) is not None


def spelled_out(sql: str, dialect: str) -> str:
    """Return the SELECT that answers ``SHOW TABLES`` or ``DESCRIBE table`` in a dialect; any other text unchanged.

    Examples
    --------
    >>> spelled_out("show tables", "sqlite").partition(" FROM ")[0]
    'SELECT name, type'
    >>> spelled_out("show tables", "duckdb"), spelled_out("PRAGMA table_info('t')", "duckdb")
    ('show tables', 'DESCRIBE t')
    """
    if dialect == "duckdb" and "pragma" in sql.lower():
        matches = ((pattern.fullmatch(sql), other) for pattern, other in _PRAGMAS)
        return next((match.expand(other) for match, other in matches if match), sql)
    if dialect not in _FORMS:
        return sql
    if asks_for_tables(sql):
        return str(_FORMS[dialect]["tables"])
    described = _DESCRIBE.fullmatch(sql)
    if described is None:
        return sql
    parts = [_folded(part, dialect) for part in re.findall(_NAME, described[1])]
    schema = _FORMS[dialect]["in_schema"].format(quote_text(parts[0])) if len(parts) > 1 else ""
    return str(_FORMS[dialect]["columns"]).format(name=quote_text(parts[-1]), schema=schema, table=described[1])


def _folded(name: str, dialect: str) -> str:
    """Return a name as the catalog has it: PostgreSQL folds unquoted names to lower case."""
    if name.startswith('"'):
        return name[1:-1].replace('""', '"')
    return name.lower() if dialect == "postgres" else name
