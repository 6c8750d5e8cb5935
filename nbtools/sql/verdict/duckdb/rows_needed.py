"""What DuckDB's syntax tree of a query says about the rows that it can need of a table.

The rule is on the safe side: a place, a join, a condition or an option that is not known here needs every row.

- A condition counts if it is one of those that WHERE joins by AND in a SELECT whose FROM has the table, alone or joined
  row by row. It holds of no row that is missing, so it rules out the same rows before an outer join as behind it.
- Of OR counts what both sides say, and of two places that name the table what both say. NOT says nothing.
- LIMIT counts where each row of the table makes one row of the result in the table's own order, or in that of columns,
  and nothing of WHERE is left to be looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from nbtools.sql.verdict.duckdb.functions import TABLE_NAMING
from nbtools.sql.verdict.duckdb.parser import Tree
from nbtools.sql.verdict.rows_needed import Condition, RowsNeeded

_EVERY = RowsNeeded()
# Of a table in FROM, and of a join of two, whatever else is said there.
_PLACE = {"query_location", "query_location_length"}
_TABLE_KEYS = _PLACE | {"type", "alias", "schema_name", "table_name", "qualified_name"}
_JOIN_KEYS = _PLACE | {"type", "alias", "left", "right", "condition", "join_type", "ref_type", "using_columns"}
_JOIN_KEYS |= {"is_implicit"}
_JOINS = set(itertools.product(("INNER", "LEFT", "RIGHT", "OUTER", "FULL"), ("REGULAR", "CROSS")))
# What makes one value of a row, and so one row of the result of each.
_OF_ONE_ROW = {"COLUMN_REF", "CONSTANT", "CAST", "COMPARISON", "CONJUNCTION", "OPERATOR", "CASE", "BETWEEN", "TYPE"}
_STAR_KEYS = _PLACE | {"class", "type", "relation_name", "exclude_list"}
_DIGITS = 10
_QUERY_KEYS = {"type", "cte_map", "select_list", "from_table", "where_clause", "modifiers", "aggregate_handling"}


def rows_needed(statement: Tree, tables: Sequence[str]) -> tuple[tuple[str, RowsNeeded], ...]:
    """Return what a statement can need of some of the tables that it names; of others it may need every row.

    Parameters
    ----------
    tables
        Names as the statement writes them.
    """
    needs: dict[str, RowsNeeded] = {}
    here: dict[int, RowsNeeded] = {}
    todo: list[Any] = [statement]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo.extend(value)
        if not isinstance(value, dict):
            continue
        kind = value.get("type")
        # These may name a table by its text.
        if kind == "SHOW_REF" or (kind == "TABLE_FUNCTION" and value["function"]["function_name"] in TABLE_NAMING):
            return ()
        if kind == "SELECT_NODE":
            here |= {id(table): _of_select(value, table, alone) for table, alone in _in_from(value.get("from_table"))}
        elif kind == "BASE_TABLE" and (name := ".".join(path_of(value))) in tables:
            need = here.get(id(value), _EVERY)
            name = name.casefold()
            needs[name] = needs[name].either(need) if name in needs else need
        todo.extend(value.values())
    return tuple((name, need) for name, need in needs.items() if need != _EVERY)


def path_of(node: Tree) -> tuple[str, ...]:
    """Return the parts of the name of a table."""
    path = node.get("qualified_name", {}).get("path")
    return tuple(part for part in path if part) if path else (node.get("table_name") or "",)


def _in_from(node: Any, *, alone: bool = True) -> Iterator[tuple[Tree, bool]]:
    """Yield the tables of a FROM whose rows count one by one, and whether each is all that there is."""
    if not node:
        return
    if node["type"] == "BASE_TABLE" and node.keys() <= _TABLE_KEYS:
        yield node, alone
    elif node["type"] == "JOIN" and node.keys() <= _JOIN_KEYS and (node["join_type"], node["ref_type"]) in _JOINS:
        yield from _in_from(node["left"], alone=False)
        yield from _in_from(node["right"], alone=False)


def _of_select(select: Tree, table: Tree, alone: bool) -> RowsNeeded:
    if "sample" in select:
        return _EVERY
    names = _Names(table, alone)
    conditions, is_whole = names.conditions(select.get("where_clause"))
    order, limit = names.page(select) if alone and is_whole else ((), None)
    return RowsNeeded(conditions=tuple(conditions), order=order, limit=limit)


class _Names:
    """How a SELECT names the columns of one table of its FROM."""

    def __init__(self, table: Tree, alone: bool) -> None:
        path = [part.casefold() for part in path_of(table)]
        alias = str(table.get("alias") or "").casefold()
        whole = [[alias]] if alias else [path[at:] for at in range(len(path))]
        # Beside another table a bare name may be a column of that one.
        self._prefixes = [*whole, *([[]] if alone else [])]

    def column(self, node: Any) -> str:
        """Return the name of the table's column that an expression is, empty for anything else."""
        if not isinstance(node, dict) or node.get("class") != "COLUMN_REF":
            return ""
        *prefix, name = (str(part).casefold() for part in node["column_names"])
        return name if prefix in self._prefixes else ""

    def conditions(self, where: Tree | None) -> tuple[list[Condition], bool]:
        """Return what a WHERE says of the table, and whether that is all it says."""
        if where is None:
            return [], True
        kind, children = where.get("type"), where.get("children", ())
        if kind in {"CONJUNCTION_AND", "CONJUNCTION_OR"}:
            sides = [self.conditions(child) for child in children]
            if kind == "CONJUNCTION_AND":
                return [each for mine, _ in sides for each in mine], all(whole for _, whole in sides)
            need, is_whole = RowsNeeded(conditions=tuple(sides[0][0])), sides[0][1]
            for mine, whole in sides[1:]:
                need = need.either(RowsNeeded(conditions=tuple(mine)))
                is_whole = is_whole and whole
            # Of two beginnings the common one says less than they do, and so do some of several conditions.
            is_one = all(len(mine) == 1 and mine[0].kind == "is" for mine, _ in sides) and len(need.conditions) == 1
            return list(need.conditions), is_whole and is_one
        if kind == "COMPARE_EQUAL":
            pairs = itertools.permutations((where["left"], where["right"]))
            return next(filter(None, (self._is_one_of(one, [other]) for one, other in pairs)), ([], False))
        if kind == "COMPARE_IN" and children:
            return self._is_one_of(children[0], children[1:]) or ([], False)
        if where.get("class") == "FUNCTION" and where.get("function_name") in {"~~", "^@"} and where.get("is_operator"):
            return self._begins(where)
        return [], False

    def _is_one_of(self, node: Tree, values: Sequence[Tree]) -> tuple[list[Condition], bool] | None:
        column, texts, parameters = self.column(node), list[str](), list[str]()
        for value in values:
            if (text := _text(value)) is not None:
                texts.append(text)
            elif value.get("class") == "PARAMETER":
                parameters.append(str(value["identifier"]))
            else:
                return None
        if not column:
            return None
        condition = Condition(column=column, kind="is", texts=tuple(texts), parameters=tuple(parameters))
        return [condition], True

    def _begins(self, function: Tree) -> tuple[list[Condition], bool]:
        node, pattern = (argument["expression"] for argument in function["arguments"])
        column, text = self.column(node), _text(pattern)
        if not column or text is None:
            return [], False
        start, rest = text, ""
        if function["function_name"] == "~~":
            end = min((at for mark in "%_" if (at := text.find(mark)) >= 0), default=len(text))
            start, rest = text[:end], text[end:]
            if not rest:
                return [Condition(column=column, kind="is", texts=(text,))], True
        mine = [Condition(column=column, kind="begins", texts=(start,))] if start else []
        return mine, rest in {"", "%"}

    def page(self, select: Tree) -> tuple[tuple[tuple[str, bool], ...], int | None]:
        """Return the order and the number of rows that are enough for a SELECT, `None` for all."""
        modifiers = {each["type"]: each for each in select.get("modifiers", ())}
        limit = modifiers.get("LIMIT_MODIFIER", {})
        most, offset = (_number(limit.get(name)) for name in ("limit", "offset"))
        if (
            not select.keys() <= _QUERY_KEYS
            or not modifiers.keys() <= {"LIMIT_MODIFIER", "ORDER_MODIFIER"}
            or select.get("aggregate_handling", "STANDARD_HANDLING") != "STANDARD_HANDLING"
            or "limit_type" in limit
            or most is None
            or (offset is None and "offset" in limit)
            or not all(map(_is_of_one_row, select["select_list"]))
        ):
            return (), None
        # Behind ORDER BY a name is that of a result column first.
        aliases = {str(each.get("alias", "")).casefold() for each in select["select_list"]}
        order = []
        for each in modifiers.get("ORDER_MODIFIER", {}).get("orders", ()):
            column = self.column(each["expression"])
            if not column or column in aliases or each.get("null_order", "ORDER_DEFAULT") != "ORDER_DEFAULT":
                return (), None
            order.append((column, each["type"] == "DESCENDING"))
        return tuple(order), most + (offset or 0)


def _text(node: Tree) -> str | None:
    literal = node.get("literal") or {}
    return str(literal.get("text", "")) if node.get("class") == "CONSTANT" and literal.get("kind") == "STRING" else None


def _number(node: Tree | None) -> int | None:
    literal = (node or {}).get("literal") or {}
    text = str(literal.get("text", ""))
    return int(text) if literal.get("kind") == "INTEGER" and text.isdigit() and len(text) < _DIGITS else None


def _is_of_one_row(value: Any) -> bool:
    """Tell whether an expression of a SELECT makes one value of each row."""
    if isinstance(value, list):
        return all(map(_is_of_one_row, value))
    if not isinstance(value, dict):
        return True
    kind = value.get("class")
    if kind == "STAR":
        return value.keys() <= _STAR_KEYS
    is_known = kind is None or kind in _OF_ONE_ROW or (kind == "FUNCTION" and value.get("is_operator") is True)
    return is_known and all(map(_is_of_one_row, value.values()))
