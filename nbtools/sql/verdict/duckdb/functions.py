"""Functions of DuckDB 2.0, reviewed one by one, each list with its reason.

Table functions are an allow-list: one that is on none of these lists is refused, so that a newer engine or an
extension brings nothing in unseen. Of the functions in expressions every one that the engine has is either in
`SCALARS` or in `REFUSED`. A name that neither knows is a macro of the catalog, which is judged by its definition, or
nothing that exists: then the engine says so best. Such a name is refused all the same when it sounds like a way out
(`sounds_dangerous`). The names and their reasons are in ``reviewed/duckdb.toml``.

What decides: a scalar is allowed when its value depends on its arguments, the clock, the random generator or facts
about the session that are not secret, and when it changes nothing. A table function is allowed when it makes rows from
its arguments, reads the catalog, or reads a file whose path stands as a constant in the text.
"""

from __future__ import annotations

import re

from nbtools.sql.verdict.reviewed import names, read, reasons

_LISTS = read("duckdb")
SCALARS = names(*_LISTS["scalars"].values())
ROW_SOURCES = names(*_LISTS["row_sources"].values())
TABLE_NAMING = names(*_LISTS["table_naming"].values())
FILE_READERS = names(*_LISTS["file_readers"].values())
PATH_OPTIONS = names(*_LISTS["path_options"].values())
REFUSED_OPTIONS = reasons(_LISTS["refused_options"])
REFUSED = reasons(_LISTS["refused"])
# One function for each collation that the engine knows; they fold text for comparison.
_COLLATION = re.compile(r"(?:icu_)?collate_[a-z]+(?:_[a-z]+)?")
# Most statements need neither of these patterns: `re` compiles them at their first use, which costs milliseconds.
_HIDDEN_SETTINGS = (
    r"passw|secret|token|proxy|credential|access_key|_key$|_key_id$|session|extension_director|extension_repositor"
    r"|log_query_path|^user(?:name)?$|connection_string|account"
)
# What functions of extensions are called that reach files, the network, processes or SQL in strings.
_DANGEROUS = (
    r"attach|call_|checkpoint|cmd|command|connect|copy|curl|delete|detach|download|drop|eval|exec|export|fetch|file|ftp"
    r"|getenv|glob|http|import|insert|install|kill|listen|load|log_|mail|mkdir|notify|open|pragma|process|put_|query"
    r"|read_|redis|remote|remove|request|s3_|_s3|save|scan|secret|send|setting|setval|shell|sleep|socket|spawn|sql"
    r"|ssh|store|stream|substrait|system|unlink|update|upload|upsert|url|webhook|write|^quack|^env|_env$|^set_|^cr_|^py_|python|lua"
)


def is_scalar(name: str) -> bool:
    """Tell whether a function in an expression, by its lower-case name, was reviewed and allowed."""
    return name in SCALARS or _COLLATION.fullmatch(name) is not None


def is_built_in(name: str) -> bool:
    """Tell whether the engine has its own function by a lower-case name, or may have: operators, ``__`` names."""
    lists = (SCALARS, REFUSED, ROW_SOURCES, TABLE_NAMING, FILE_READERS)
    return any(name in names for names in lists) or is_scalar(name) or _is_inner(name)


def _is_inner(name: str) -> bool:
    return name.startswith("__") or not name.replace("_", "a").isalnum()


def sounds_dangerous(name: str) -> bool:
    """Tell whether a function that no list knows sounds like one that reaches out of the engine."""
    return name.startswith("__") or re.search(_DANGEROUS, name) is not None


def is_setting_shown(name: str) -> bool:
    """Tell whether ``current_setting`` may show a setting: no secret, and no way to one."""
    return re.search(_HIDDEN_SETTINGS, name, re.IGNORECASE) is None


def is_suggestible(text: str) -> bool:
    """Tell whether completing a text cannot list files: their names are suggested inside quotes only."""
    return not any(char in text for char in "'\"/\\~")
