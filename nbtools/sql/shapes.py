"""Shapes of DuckDB's syntax tree: each kind of node, the keys that hold further nodes, and the keys that do not.

Taken from the serialisation of DuckDB 2.0 with every field written. A node of a kind that is not here, or with a key
that is not here, is refused: what the walk does not know it cannot judge.
"""

from __future__ import annotations

__all__ = ["MODIFYING", "PLAIN_KEYS", "PLAIN_LEAVES", "SHAPES", "SHOWN", "SHOWS", "Shape"]

Shape = tuple[tuple[str, ...], frozenset[str]]

_PLACE = "alias query_location query_location_length sample type"
_EXPRESSION = "alias class query_location query_location_length type"


def _shape(children: str, leaves: str) -> Shape:
    names = tuple(children.split())
    return names, frozenset((*names, *leaves.split()))


# Nodes with a class are expressions and are known by it; others by their type.
SHAPES: dict[str, Shape] = {
    # queries
    "SELECT_NODE": _shape(
        "cte_map select_list from_table where_clause group_expressions having qualify modifiers",
        "type sample group_sets aggregate_handling",
    ),
    "SET_OPERATION_NODE": _shape("cte_map left right children modifiers", "type setop_type setop_all"),
    "RECURSIVE_CTE_NODE": _shape("cte_map left right modifiers key_targets", "type aliases cte_name union_all"),
    # what stands in FROM
    "BASE_TABLE": _shape("at_clause", f"{_PLACE} catalog_name schema_name table_name qualified_name column_name_alias"),
    "SUBQUERY_REF": _shape("subquery", f"{_PLACE} column_name_alias"),
    "JOIN": _shape(
        "left right condition ranking_expression duplicate_eliminated_columns",
        f"{_PLACE} delim_flipped is_implicit join_type nearest_approx nearest_count nearest_order_type ref_type"
        " using_columns",
    ),
    "TABLE_FUNCTION": _shape("function", f"{_PLACE} column_name_alias with_ordinality"),
    "EXPRESSION_LIST": _shape("values", f"{_PLACE} expected_names expected_types"),
    "EMPTY": _shape("", _PLACE),
    "PIVOT": _shape("source aggregates pivots", f"{_PLACE} column_name_alias groups include_nulls unpivot_names"),
    "SHOW_REF": _shape("query", f"{_PLACE} catalog_name schema_name table_name qualified_name show_type"),
    # expressions
    "BETWEEN": _shape("input lower upper", _EXPRESSION),
    "CASE": _shape("case_checks else_expr", _EXPRESSION),
    "CAST": _shape("child type_expr", f"{_EXPRESSION} try_cast"),
    "COLLATE": _shape("child", f"{_EXPRESSION} collation"),
    "COLUMN_REF": _shape("", f"{_EXPRESSION} column_names"),
    "COMPARISON": _shape("left right", _EXPRESSION),
    "CONJUNCTION": _shape("children", _EXPRESSION),
    "CONSTANT": _shape("", f"{_EXPRESSION} literal value"),
    "DEFAULT": _shape("", _EXPRESSION),
    "FUNCTION": _shape(
        "arguments filter order_bys",
        f"{_EXPRESSION} catalog distinct export_state function_name is_operator qualified_name schema",
    ),
    "LAMBDA": _shape("lhs expr", f"{_EXPRESSION} syntax_type"),
    "OPERATOR": _shape("children", _EXPRESSION),
    "PARAMETER": _shape("", f"{_EXPRESSION} identifier"),
    "POSITIONAL_REFERENCE": _shape("", f"{_EXPRESSION} index"),
    "STAR": _shape(
        "expr replace_list", f"{_EXPRESSION} columns exclude_list qualified_exclude_list relation_name rename_list"
    ),
    "SUBQUERY": _shape("child subquery", f"{_EXPRESSION} comparison_type subquery_type"),
    "TYPE": _shape("children", f"{_EXPRESSION} catalog qualified_name schema type_name"),
    "WINDOW": _shape(
        "arguments default_expr end_expr filter_expr offset_expr orders arg_orders partitions start_expr",
        f"{_EXPRESSION} catalog distinct end exclude_clause function_name has_ignore_nulls ignore_nulls qualified_name"
        " schema start",
    ),
    # modifiers
    "LIMIT_MODIFIER": _shape("limit offset", "type limit_type"),
    "ORDER_MODIFIER": _shape("orders", "type"),
    "DISTINCT_MODIFIER": _shape("distinct_on_targets", "type"),
    "ASCENDING": _shape("expression", "type null_order"),
    "DESCENDING": _shape("expression", "type null_order"),
    "ORDER_DEFAULT": _shape("expression", "type null_order"),
}
# Records without a kind: arguments, WITH entries, CASE branches, pivots, values.
PLAIN_KEYS: frozenset[str] = _shape(
    "alias aliases catalog column entries error expr expression is_null key key_targets map materialized name "
    "named_param_map node payload_aggregates pivot_enum pivot_expressions query_node schema star_expr "
    "statements table then_expr type unit unpivot_names value values when_expr",
    "",
)[1]
PLAIN_LEAVES: frozenset[str] = frozenset({"aliases", "named_param_map", "type", "unpivot_names"})
# Nodes that change something, and the word of the text they come from.
MODIFYING: dict[str, str] = {
    "COPY_QUERY_NODE": "COPY",
    "DELETE_QUERY_NODE": "DELETE",
    "INSERT_QUERY_NODE": "INSERT",
    "MERGE_QUERY_NODE": "MERGE",
    "MERGE_INTO_QUERY_NODE": "MERGE",
    "UPDATE_QUERY_NODE": "UPDATE",
}
SHOWS: frozenset[str] = frozenset({"DESCRIBE", "SUMMARY", "SHOW", "SHOW_FROM", "SHOW_SPECIAL", "SHOW_UNQUALIFIED"})
SHOWN: frozenset[str] = frozenset({'"databases"', '"schemas"', '"tables"', '"variables"', "__show_tables_expanded"})
