"""Functions of DuckDB 2.0, reviewed one by one, each list with its reason.

Table functions are an allow-list: one that is on none of these lists is refused, so that a newer engine or an
extension brings nothing in unseen. Of the functions in expressions every one that the engine has is either in
`SCALARS` or in `REFUSED`; a test compares both with ``duckdb_functions()`` of the engine with json, icu and parquet. A
name that neither knows is a macro of the catalog, which is judged by its definition, or nothing that exists: then the
engine says so best. Such a name is refused all the same when it sounds like a way out (`sounds_dangerous`).

What decides: a scalar is allowed when its value depends on its arguments, the clock, the random generator or facts
about the session that are no secret, and when it changes nothing. A table function is allowed when it makes rows from
its arguments, reads the catalog, or reads a file whose path stands as a constant in the text.
"""

from __future__ import annotations

import re

__all__ = [
    "DATABASE_FILES",
    "FILE_READERS",
    "OPERATORS",
    "PATH_OPTIONS",
    "REFUSED",
    "REFUSED_OPTIONS",
    "ROW_SOURCES",
    "SCALARS",
    "TABLE_NAMING",
    "is_scalar",
    "is_setting_shown",
    "is_suggestible",
    "sounds_dangerous",
]

_SCALARS: dict[str, str] = {
    "arithmetic and constants of its arguments": """
        abs acos acosh add asin asinh atan atan2 atanh binom bit_count bit_position bitstring bitstring_byte_comparable
        cbrt ceil ceiling cos cosh cot decimal_division degrees divide even exp factorial fdiv floor fmod gamma gcd
        get_bit greatest greatest_common_divisor isfinite isinf isnan lcm least least_common_multiple lgamma ln log
        log10 log2 mod multiply nextafter nullif pi pow power radians round round_even roundbankers set_bit sign
        signbit sin sinh sqrt subtract tan tanh trunc xor
    """,
    "conditions, types and enums; error() only ends the query": """
        alias assert_true can_cast_implicitly cast_to_type constant_or_null enum_code enum_first enum_last enum_range
        enum_range_boundary error get_type if make_type replace_type stats switch typeof vector_type
    """,
    "chance and identifiers; the seed cannot be set": """
        gen_random_uuid random uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7
    """,
    "text from text": """
        ascii bar bit_length char_length character_length chr concat concat_ws contains editdist3 ends_with format
        format_bytes formatreadabledecimalsize formatreadablesize ilike_escape instr lcase left left_grapheme length
        length_grapheme like_escape lower lpad ltrim nfc_normalize not_ilike_escape not_like_escape octet_length ord
        overlay parse_formatted_bytes position prefix printf repeat replace reverse right right_grapheme rpad rtrim
        split split_part starts_with str_split str_split_regex string_split string_split_regex string_to_array
        strip_accents strlen strpos substr substring substring_grapheme suffix translate trim ucase unicode upper
    """,
    "text distances": """
        damerau_levenshtein hamming jaccard jaro_similarity jaro_winkler_similarity levenshtein mismatches
    """,
    "regular expressions (RE2, linear time)": """
        regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
        regexp_split_to_array regexp_split_to_table
    """,
    "encodings and digests": """
        base64 bin decode encode from_base64 from_binary from_hex hash hex md5 md5_number md5_number_lower
        md5_number_upper sha1 sha256 to_base to_base64 to_binary to_hex unbin unhex url_decode url_encode
    """,
    "path text taken apart; no file is touched": """
        hive_partition_component parse_dirname parse_dirpath parse_filename parse_path path_join
    """,
    "dates, times and the clock": """
        age ago century current_date current_localtime current_localtimestamp date_add date_diff date_part date_sub
        date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade
        epoch epoch_ms epoch_ns epoch_us era get_current_time get_current_timestamp hour isodow isoyear julian last_day
        make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz microsecond millennium
        millisecond minute month monthname nanosecond normalized_interval now quarter second strftime strptime
        time_bucket timetz_byte_comparable timezone timezone_hour timezone_minute to_centuries to_days to_decades
        to_hours to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp
        to_weeks to_years today transaction_timestamp try_strptime week weekday weekofyear year yearweek
    """,
    "lists and arrays; a lambda's body is walked like any expression": """
        aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
        array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
        array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
        array_inner_product array_intersect array_length array_negative_dot_product array_negative_inner_product
        array_pop_back array_pop_front array_position array_prepend array_push_back array_push_front array_reduce
        array_resize array_reverse array_reverse_sort array_select array_slice array_sort array_to_string
        array_to_string_comma_default array_transform array_unique array_value array_where array_zip filter flatten
        generate_series generate_subscripts grade_up invoke len list_aggr list_aggregate list_any_value list_append
        list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or
        list_cat list_concat list_contains list_cosine_distance list_cosine_similarity list_count list_distance
        list_distinct list_dot_product list_element list_entropy list_extract list_filter list_first list_grade_up
        list_has list_has_all list_has_any list_histogram list_indexof list_inner_product list_intersect list_kurtosis
        list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode list_negative_dot_product
        list_negative_inner_product list_pack list_position list_prepend list_product list_reduce list_resize
        list_reverse list_reverse_sort list_select list_sem list_skewness list_slice list_sort list_stddev_pop
        list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop list_var_samp
        list_where list_zip range reduce unnest unpivot_list
    """,
    "structs, maps and unions": """
        cardinality element_at map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract
        map_extract_value map_from_entries map_keys map_values remap_struct row struct_concat struct_contains
        struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack
        struct_position struct_update struct_values union_extract union_tag union_value
    """,
    "JSON and variants; json_serialize_sql and its inverse only translate text": """
        array_to_json from_json from_json_strict json json_array json_array_length json_contains
        json_copy_strftime_if_date json_copy_strftime_if_timestamp json_deep_merge json_deserialize_sql json_exists
        json_extract json_extract_path json_extract_path_text json_extract_string json_group_array json_group_object
        json_group_structure json_insert json_keys json_merge_patch json_merge_patch_diff json_normalize json_object
        json_pretty json_quote json_remove json_replace json_serialize_sql json_set json_strip_nulls json_structure
        json_transform json_transform_strict json_type json_valid json_value row_to_json to_json variant_array_length
        variant_bytes_to_variant variant_comparator variant_contains variant_exists variant_extract
        variant_extract_string variant_group_array variant_group_object variant_keys variant_normalize
        variant_to_parquet_variant variant_type variant_typeof
    """,
    "geometry": """
        st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_crs st_geomfromgeojson st_geomfromwkb
        st_intersects_extent st_setcrs vertex_extract
    """,
    "aggregates": """
        any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last
        arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg
        bool_and bool_or combine combine_aggr corr count count_if count_star countif covar_pop covar_samp
        decimal_average entropy equi_width_bins favg finalize first fsum geomean geometric_mean group_concat histogram
        histogram_exact is_histogram_other_bin kahan_sum kurtosis kurtosis_pop last list listagg lttb mad max max_by
        mean median min min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count
        regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop
        stddev_samp string_agg sum sum_no_overflow sumkahan to_aggregate_state var_pop var_samp variance wavg
        weighted_avg
    """,
    "windows": """
        cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense
        row_number
    """,
    "sort keys and index keys, made from their arguments": "create_sort_key icu_sort_key index_key",
    "facts about this session": """
        current_catalog current_connection_id current_database current_query current_query_id current_role
        current_schema current_schemas current_setting current_transaction_id current_user currval getvariable
        in_search_path session_user txid_current user version
    """,
    "answers of the catalog in PostgreSQL's words": """
        col_description format_pg_type format_type get_block_size has_any_column_privilege has_column_privilege
        has_database_privilege has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege
        has_schema_privilege has_sequence_privilege has_server_privilege has_table_privilege has_tablespace_privilege
        inet_client_addr inet_client_port inet_server_addr inet_server_port map_to_pg_oid obj_description
        pg_collation_is_visible pg_conf_load_time pg_conversion_is_visible pg_function_is_visible pg_get_constraintdef
        pg_get_expr pg_get_viewdef pg_has_role pg_is_other_temp_schema pg_my_temp_schema pg_opclass_is_visible
        pg_operator_is_visible pg_opfamily_is_visible pg_postmaster_start_time pg_size_pretty pg_table_is_visible
        pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible
        pg_type_is_visible pg_typeof shobj_description
    """,
    "the grammar's own constructions": "coalesce grouping grouping_id ifnull",
    "text of SQL laid out; nothing is looked up (extension autocomplete)": "duckdb_format_sql",
}
SCALARS: frozenset[str] = frozenset(name for names in _SCALARS.values() for name in names.split())
OPERATORS: frozenset[str] = frozenset(
    [
        "!",
        "!=",
        "!__postfix",
        "!~~",
        "!~~*",
        "%",
        "&",
        "&&",
        "*",
        "**",
        "+",
        "-",
        "->",
        "->>",
        "/",
        "//",
        "<",
        "<->",
        "<<",
        "<=",
        "<=>",
        "<>",
        "<@",
        "=",
        "==",
        ">",
        ">=",
        ">>",
        "@",
        "@>",
        "^",
        "^@",
        "|",
        "||",
        "~",
        "~*",
        "!~",
        "!~*",
        "~~",
        "~~*",
        "~~~",
    ]
)
# One function for each collation that the engine knows; they fold text for comparison.
_COLLATION = re.compile(r"(?:icu_)?collate_[a-z]+(?:_[a-z]+)?")

_ROW_SOURCES: dict[str, str] = {
    "rows made from the arguments": """
        generate_series icu_calendar_names json_each json_tree pg_timezone_names range repeat repeat_row sql_tokenize
        summary test_all_types test_vector_types unnest
    """,
    "the catalog and facts about the engine": """
        duckdb_approx_database_count duckdb_available_metrics duckdb_columns duckdb_connection_count duckdb_constraints
        duckdb_coordinate_systems duckdb_databases duckdb_dependencies duckdb_dialects duckdb_eviction_queues
        duckdb_extensions duckdb_external_file_cache duckdb_external_resource_types duckdb_external_resources
        duckdb_functions duckdb_grammar_extensions duckdb_indexes duckdb_keywords duckdb_memory duckdb_optimizers
        duckdb_prepared_statements duckdb_profiling_settings duckdb_schemas duckdb_secret_types duckdb_sequences
        duckdb_settings duckdb_table_sample duckdb_tables duckdb_temporary_files duckdb_triggers duckdb_types
        duckdb_variables duckdb_views pragma_collations pragma_database_size pragma_metadata_info pragma_platform
        pragma_show pragma_storage_info pragma_table_info pragma_user_agent pragma_version
    """,
}
ROW_SOURCES: frozenset[str] = frozenset(name for names in _ROW_SOURCES.values() for name in names.split())
# Macros over query_table(): the first argument names a table, and a text there may name a file.
TABLE_NAMING: frozenset[str] = frozenset({"histogram", "histogram_values"})
# Their first argument is a path, or a list of paths, and must stand as a constant in the text.
FILE_READERS: frozenset[str] = frozenset(
    [
        "glob",
        "parquet_bloom_probe",
        "parquet_file_metadata",
        "parquet_full_metadata",
        "parquet_kv_metadata",
        "parquet_metadata",
        "parquet_scan",
        "parquet_schema",
        "read_blob",
        "read_csv",
        "read_csv_auto",
        "read_json",
        "read_json_auto",
        "read_json_objects",
        "read_json_objects_auto",
        "read_ndjson",
        "read_ndjson_auto",
        "read_ndjson_objects",
        "read_parquet",
        "read_single_csv_file",
        "read_single_json_file",
        "read_single_parquet_file",
        "read_text",
        "read_xlsx",
        "sniff_csv",
    ]
)
# Arguments of readers that write, whatever their value.
REFUSED_OPTIONS: dict[str, str] = dict.fromkeys(
    ("rejects_limit", "rejects_scan", "rejects_table", "store_rejects"), "writes rejected rows to tables"
)
# The engine accepts the path under these names too.
PATH_OPTIONS: frozenset[str] = frozenset({"file", "file_name", "files", "path", "paths"})
DATABASE_FILES = re.compile(r"\.(?:db|ddb|duckdb|sqlite3?)$", re.IGNORECASE)

_SLEEPS = "only holds the engine up"
_STRINGS = "runs SQL that is hidden in a string"
_POINTER = "reads memory by address"
_ENGINE = "changes the engine's state"
_LOGS = "shows what others asked"
_RESOURCE = "reaches resources outside the engine"
REFUSED: dict[str, str] = {
    "nextval": "advances a sequence",
    "setval": "sets a sequence",
    "setseed": "changes the state of the random generator",
    "write_log": "writes to the engine's log",
    "sleep_ms": _SLEEPS,
    "pg_sleep": _SLEEPS,
    "getenv": "reads the environment",
    "which_secret": "looks secrets up",
    "duckdb_secrets": "lists secrets",
    "duckdb_secret_type_parameters": "lists secrets' parameters",
    "json_execute_serialized_sql": _STRINGS,
    "json_serialize_plan": "plans SQL that is hidden in a string, which reads the files it names",
    "query": _STRINGS,
    "query_table": "reads a table that is named in a string; write its name",
    "sql_auto_complete": "suggests names of files; only constant text without quotes and slashes is completed",
    "parse_duckdb_log_message": "reads the engine's log",
    "duckdb_logs": _LOGS,
    "duckdb_logs_parsed": _LOGS,
    "duckdb_log_contexts": _LOGS,
    "enable_logging": _ENGINE,
    "disable_logging": _ENGINE,
    "enable_profiling": "writes profiles",
    "disable_profiling": _ENGINE,
    "truncate_duckdb_logs": "deletes the engine's log",
    "checkpoint": "writes to the database file",
    "force_checkpoint": "writes to the database file",
    "create_external_resource": _RESOURCE,
    "register_external_resource": _RESOURCE,
    "register_external_resource_type": _RESOURCE,
    "deregister_external_resource": _RESOURCE,
    "destroy_external_resource": _RESOURCE,
    "duckdb_extension_repositories": _RESOURCE,
    "arrow_scan": _POINTER,
    "arrow_scan_dumb": _POINTER,
    "pandas_scan": _POINTER,
    "python_arrow_scan": _POINTER,
    "python_map_function": "calls Python",
    "seq_scan": "is internal to the engine",
    "read_duckdb": "opens a database file; name it as a connection",
    "dbgen": "writes tables",
    "dsdgen": "writes tables",
    "load_aws_credentials": "loads credentials",
}
_SECRET = re.compile(
    r"passw|secret|token|proxy|credential|access_key|_key$|_key_id$|session|extension_director|extension_repositor"
    r"|log_query_path|^user(?:name)?$|connection_string|account",
    re.IGNORECASE,
)
# What functions of extensions are called that reach files, the network, processes or SQL in strings.
_DANGEROUS = re.compile(
    r"attach|call_|checkpoint|cmd|command|connect|copy|curl|delete|detach|download|drop|eval|exec|export|fetch|file|ftp"
    r"|getenv|glob|http|import|insert|install|kill|listen|load|log_|mail|mkdir|notify|open|pragma|process|put_|query"
    r"|read_|redis|remote|remove|request|s3_|_s3|save|scan|secret|send|setting|setval|shell|sleep|socket|spawn|sql"
    r"|ssh|store|stream|system|unlink|update|upload|upsert|url|webhook|write|^env|_env$|^set_|^cr_|^py_|python|lua"
)


def is_scalar(name: str) -> bool:
    """Tell whether a function in an expression, by its lower-case name, was reviewed and allowed."""
    return name in SCALARS or name in OPERATORS or _COLLATION.fullmatch(name) is not None


def sounds_dangerous(name: str) -> bool:
    """Tell whether a function that no list knows sounds like one that reaches out of the engine."""
    return name.startswith("__") or _DANGEROUS.search(name) is not None


def is_setting_shown(name: str) -> bool:
    """Tell whether ``current_setting`` may show a setting: no secret, and no way to one."""
    return _SECRET.search(name) is None


def is_suggestible(text: str) -> bool:
    """Tell whether completing a text cannot list files: their names are suggested inside quotes only."""
    return not any(char in text for char in "'\"/\\~")
