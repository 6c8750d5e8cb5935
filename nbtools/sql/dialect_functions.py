"""Functions of the other dialects that may be called, by name; whatever is not here is refused.

sqlglot knows some 550 functions by class, the same for every dialect; those are allowed unless `REFUSED_CLASSES` names
them. A function that it does not know keeps its name and must stand on the dialect's list. So a function of a user, of
an extension, or one that reads files, sleeps, locks, sends or runs SQL in a string is refused without being named; to
allow one's own, there is ``Policy(functions=…)``.

PostgreSQL's list is made from ``pg_proc`` of version 18: everything that PostgreSQL itself marks as immutable or stable
and that people write, less what reads the server's files or settings, shows what others run, takes a transaction id or
runs SQL in a string; and the few volatile ones that only tell the time, draw a random number or measure a table.
"""

from __future__ import annotations

__all__ = [
    "FUNCTIONS",
    "PREFIXES",
    "REFUSED_CLASSES",
    "SETTINGS",
    "SHOWN",
    "TABLE_FUNCTIONS",
]

_POSTGRES = """
    abs acos acosd acosh age any_value area array_agg array_append array_cat array_dims array_fill array_length
    array_lower array_ndims array_position array_positions array_prepend array_remove array_replace array_reverse
    array_sample array_shuffle array_sort array_to_json array_to_string array_to_tsvector array_upper ascii asin asind
    asinh atan atan2 atan2d atand atanh avg bit bit_and bit_count bit_length bit_or bit_xor bool bool_and bool_or
    bound_box box broadcast bytea cardinality casefold cbrt ceil ceiling center char char_length character_length chr
    cidr circle clock_timestamp col_description concat concat_ws convert convert_from convert_to corr cos cosd cosh
    cosine_distance cot cotd count covar_pop covar_samp crc32 crc32c crypt cume_dist current_database current_query
    current_schema current_schemas current_setting current_user currval daitch_mokotoff date date_add date_bin date_part
    date_subtract date_trunc datemultirange daterange decode degrees dense_rank diagonal diameter difference digest div
    dmetaphone dmetaphone_alt dpow each encode enum_first enum_last enum_range erf erfc every exp extract factorial
    family first first_value float4 float8 floor format format_type gamma gcd gen_random_uuid gen_salt generate_series
    generate_subscripts get_bit get_byte get_current_ts_config getdatabaseencoding getpgusername
    has_any_column_privilege has_column_privilege has_database_privilege has_foreign_data_wrapper_privilege
    has_function_privilege has_language_privilege has_largeobject_privilege has_parameter_privilege has_schema_privilege
    has_sequence_privilege has_server_privilege has_table_privilege has_tablespace_privilege has_type_privilege hashtext
    hashtextextended height hmac host hostmask hstore hstore_to_json hstore_to_jsonb icu_unicode_version
    inet_client_addr inet_client_port inet_merge inet_same_family inet_server_addr inet_server_port initcap
    inner_product int2 int2int4_sum int4 int4multirange int4range int8 int8multirange int8range interval is_normalized
    isclosed isempty isfinite ishorizontal isopen isparallel isperp isvertical jaro_winkler json_agg json_agg_strict
    json_array_elements json_array_elements_text json_array_length json_build_array json_build_object json_each
    json_each_text json_object json_object_agg json_object_agg_strict json_object_agg_unique
    json_object_agg_unique_strict json_object_keys json_populate_record json_populate_recordset json_scalar
    json_serialize json_strip_nulls json_to_record json_to_recordset json_to_tsvector json_typeof jsonb_agg
    jsonb_agg_strict jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array
    jsonb_build_object jsonb_concat jsonb_each jsonb_each_text jsonb_insert jsonb_object jsonb_object_agg
    jsonb_object_agg_strict jsonb_object_agg_unique jsonb_object_agg_unique_strict jsonb_object_keys jsonb_path_exists
    jsonb_path_exists_tz jsonb_path_match jsonb_path_match_tz jsonb_path_query jsonb_path_query_array
    jsonb_path_query_array_tz jsonb_path_query_first jsonb_path_query_first_tz jsonb_path_query_tz jsonb_populate_record
    jsonb_populate_record_valid jsonb_populate_recordset jsonb_pretty jsonb_set jsonb_set_lax jsonb_strip_nulls
    jsonb_to_record jsonb_to_recordset jsonb_to_tsvector jsonb_typeof justify_days justify_hours justify_interval
    l1_distance l2_distance lag last last_value lastval lcm lead left length levenshtein lgamma like like_escape line ln
    log log10 lower lower_inc lower_inf lpad lseg ltrim macaddr macaddr8 make_date make_interval make_time
    make_timestamp make_timestamptz masklen max md5 metaphone min min_scale mod mode money multirange mxid_age name
    netmask network normalize now npoints nth_value ntile num_nonnulls num_nulls numeric nummultirange numnode numrange
    obj_description octet_length oid overlaps overlay parse_ident path percent_rank percentile_cont percentile_disc
    pg_available_extension_versions pg_available_extensions pg_backend_pid pg_basetype pg_blocking_pids
    pg_char_to_encoding pg_client_encoding pg_collation_for pg_collation_is_visible pg_column_compression
    pg_column_is_updatable pg_column_size pg_column_toast_chunk_id pg_conf_load_time pg_conversion_is_visible
    pg_current_snapshot pg_current_xact_id_if_assigned pg_database_size pg_describe_object pg_encoding_max_length
    pg_encoding_to_char pg_filenode_relation pg_function_is_visible pg_get_acl pg_get_catalog_foreign_keys
    pg_get_constraintdef pg_get_expr pg_get_function_arg_default pg_get_function_arguments
    pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody pg_get_functiondef pg_get_indexdef
    pg_get_keywords pg_get_object_address pg_get_partition_constraintdef pg_get_partkeydef pg_get_replica_identity_index
    pg_get_replication_slots pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef
    pg_get_statisticsobjdef_columns pg_get_statisticsobjdef_expressions pg_get_triggerdef pg_get_userbyid pg_get_viewdef
    pg_has_role pg_identify_object pg_identify_object_as_address pg_index_column_has_property pg_index_has_property
    pg_indexam_has_property pg_indexes_size pg_input_error_info pg_input_is_valid pg_is_in_recovery
    pg_is_other_temp_schema pg_last_xact_replay_timestamp pg_lsn pg_mcv_list_items pg_my_temp_schema
    pg_opclass_is_visible pg_operator_is_visible pg_opfamily_is_visible pg_partition_ancestors pg_partition_root
    pg_partition_tree pg_postmaster_start_time pg_relation_is_publishable pg_relation_is_updatable pg_relation_size
    pg_sequence_parameters pg_settings_get_flags pg_size_bytes pg_size_pretty pg_snapshot_xip pg_snapshot_xmax
    pg_snapshot_xmin pg_statistics_obj_is_visible pg_table_is_visible pg_table_size pg_tablespace_databases
    pg_timezone_abbrevs_abbrevs pg_timezone_abbrevs_zone pg_timezone_names pg_total_relation_size pg_trigger_depth
    pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible
    pg_typeof pg_visible_in_snapshot pg_wal_lsn_diff phraseto_tsquery pi plainto_tsquery point polygon position pow
    power quote_ident quote_literal quote_nullable radians radius random random_normal range_agg range_intersect_agg
    range_merge rank regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace
    regexp_split_to_array regexp_split_to_table regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right round row row_number row_to_json rpad rtrim scale
    session_user set_bit set_byte set_masklen setweight sha224 sha256 sha384 sha512 shobj_description sign similarity
    sin sind sinh slice slope soundex split_part sqrt starts_with statement_timestamp stddev stddev_pop stddev_samp
    strict_word_similarity string_agg string_to_array string_to_table strip strpos substr substring subvector sum
    system_user tan tand tanh text textcat time time_bucket time_bucket_gapfill timeofday timestamp timestamptz timetz
    timezone to_ascii to_bin to_char to_date to_hex to_json to_jsonb to_number to_oct to_regclass to_regcollation
    to_regnamespace to_regoper to_regoperator to_regproc to_regprocedure to_regrole to_regtype to_regtypemod
    to_timestamp to_tsquery to_tsvector transaction_timestamp translate trim_array trim_scale trunc ts_debug ts_delete
    ts_filter ts_headline ts_lexize ts_parse ts_rank ts_rank_cd tsmultirange tsrange tstzmultirange tstzrange
    tsvector_concat tsvector_to_array txid_current_if_assigned txid_current_snapshot txid_snapshot_xip
    txid_snapshot_xmax txid_snapshot_xmin txid_visible_in_snapshot unaccent unicode_assigned unicode_version unistr
    unnest upper upper_inc upper_inf uuid_extract_timestamp uuid_extract_version uuid_generate_v4 uuidv4 uuidv7 var_pop
    var_samp varchar variance vector_dims vector_norm version websearch_to_tsquery width width_bucket word_similarity
    xml xml_is_well_formed xml_is_well_formed_content xml_is_well_formed_document xmlagg xmlcomment xmlexists xpath
    xpath_exists
"""
_SQLITE = """
    abs acos acosh asin asinh atan atan2 atanh avg bm25 ceil ceiling changes char coalesce concat concat_ws cos cosh
    count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value floor
    format glob group_concat hex highlight ifnull iif instr json json_array json_array_length json_error_position
    json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
    json_remove json_replace json_set json_type json_valid jsonb jsonb_array jsonb_extract jsonb_group_array
    jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set julianday lag
    last_value lead length like likelihood likely ln log log10 log2 lower ltrim match matchinfo max median min mod
    nth_value ntile nullif octet_length offsets percent_rank percentile percentile_cont percentile_disc pi pow power
    printf quote radians random randomblob rank regexp replace round row_number rtrim sign sin sinh snippet soundex
    sqlite_version sqrt strftime string_agg substr substring subtype sum tan tanh time timediff total total_changes trim
    trunc typeof unhex unicode unistr unistr_quote unixepoch unlikely upper zeroblob
"""
_SQLITE_TABLES = """
    generate_series json_each json_tree jsonb_each jsonb_tree pragma_collation_list pragma_compile_options
    pragma_database_list pragma_foreign_key_list pragma_function_list pragma_index_info pragma_index_list
    pragma_index_xinfo pragma_module_list pragma_pragma_list pragma_table_info pragma_table_list pragma_table_xinfo
"""
_MYSQL = """
    addtime aes_decrypt aes_encrypt any_value ascii asymmetric_decrypt bin bin_to_uuid bit_and bit_count bit_or bit_xor
    char_length character_length charset coercibility collation compress connection_id conv crc32 curdate curtime
    database degrees elt export_set extractvalue field find_in_set format format_bytes format_pico_time from_days
    from_unixtime geomcollection get_format greatest group_concat grouping hex icu_version inet6_aton inet6_ntoa
    inet_aton inet_ntoa insert instr interval is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6 is_uuid isnull
    json_array_append json_array_insert json_arrayagg json_contains json_contains_path json_depth json_insert json_keys
    json_length json_merge json_merge_patch json_merge_preserve json_objectagg json_overlaps json_pretty json_quote
    json_replace json_schema_valid json_search json_set json_storage_free json_storage_size json_type json_unquote
    json_valid json_value lcase linestring locate log10 log2 lpad ltrim make_set makedate maketime mbrcontains mbrwithin
    microsecond mid mod now oct octet_length ord period_add period_diff point polygon position quote radians
    regexp_instr regexp_like regexp_replace regexp_substr reverse row_count rpad rtrim schema sec_to_time sha sha1 sha2
    soundex space std strcmp subdate substr substring_index subtime sysdate system_user time_format time_to_sec timediff
    to_days to_seconds truncate ucase uncompress uncompressed_length unhex unix_timestamp updatexml user utc_date
    utc_time utc_timestamp uuid uuid_short uuid_to_bin values version weekday weekofyear weight_string yearweek
"""
_TRINO = """
    all_match any_match array_agg array_first array_histogram array_last array_sort arrays_overlap at_timezone bar
    beta_cdf bing_tile bing_tiles_around bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
    bitwise_xor bool_and bool_or cardinality char2hexint checksum classify codepoint color combinations concat_ws
    contains contains_sequence cosine_similarity crc32 current_catalog current_groups current_schema current_timezone
    date date_format date_parse day_of_month day_of_week day_of_year degrees dot_product dow doy e element_at
    empty_approx_set evaluate_classifier_predictions every filter format format_datetime format_number from_base
    from_base32 from_base64 from_base64url from_big_endian_32 from_big_endian_64 from_hex from_ieee754_32
    from_ieee754_64 from_iso8601_date from_iso8601_timestamp from_iso8601_timestamp_nanos from_unixtime
    from_unixtime_nanos from_utf8 geometric_mean great_circle_distance hamming_distance hash_counts histogram hmac_md5
    hmac_sha1 hmac_sha256 hmac_sha512 human_readable_seconds infinity inverse_beta_cdf inverse_normal_cdf is_finite
    is_infinite is_json_scalar is_nan json_array_contains json_array_get json_array_length json_exists json_format
    json_parse json_query json_size json_value kurtosis last_day_of_month levenshtein_distance line_interpolate_point
    listagg luhn_check make_set_digest map_agg map_concat map_entries map_filter map_from_entries map_keys map_union
    map_values map_zip_with max_by merge merge_set_digest millisecond min_by mod multimap_agg multimap_from_entries
    murmur3 nan ngrams none_match normal_cdf normalize now numeric_histogram parse_data_size parse_datetime
    parse_duration qdigest_agg quantile_at_value quarter radians rand random reduce reduce_agg regexp_count
    regexp_extract_all regexp_position regexp_split render repeat reverse rgb sequence sha1 sha256 sha512 shuffle
    skewness spatial_partitioning split split_part split_to_map split_to_multimap spooky_hash_v2_32 spooky_hash_v2_64
    strpos substr tdigest_agg timestamp_objectid timezone timezone_hour timezone_minute to_base to_base32 to_base64
    to_base64url to_big_endian_32 to_big_endian_64 to_char to_date to_geometry to_hex to_ieee754_32 to_ieee754_64
    to_iso8601 to_milliseconds to_spherical_geography to_timestamp to_unixtime to_utf8 transform transform_keys
    transform_values translate trim_array truncate typeof url_decode url_encode url_extract_fragment url_extract_host
    url_extract_parameter url_extract_path url_extract_port url_extract_protocol url_extract_query uuid
    value_at_quantile values_at_quantiles version week_of_year wilson_interval_lower wilson_interval_upper with_timezone
    word_stem xxhash64 year_of_week yow zip zip_with
"""
_SPARK = """
    acos acosh add_months aggregate any approx_count_distinct approx_percentile array_agg array_append array_compact
    array_contains array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip
    ascii assert_true base64 bigint bin binary bit_and bit_count bit_get bit_length bit_or bit_reverse bit_xor bool_and
    bool_or boolean bround btrim cardinality char_length charindex collect_list collect_set concat_ws contains conv
    convert_timezone count_min_sketch crc32 csc current_catalog current_database current_schema current_timezone
    current_user date date_add date_diff date_format date_from_unix_date date_part date_sub datediff day dayname
    dayofmonth dayofweek dayofyear decimal decode double element_at elt encode endswith equal_null every exists
    explode_outer expm1 factorial find_in_set flatten float forall format_number format_string from_csv from_json
    from_unixtime from_utc_timestamp get get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric
    hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hour hypot ilike initcap inline_outer
    input_file_block_length input_file_block_start input_file_name instr int isnan isnotnull isnull json_array_length
    json_object_keys json_tuple kurtosis last_day lcase levenshtein listagg localtimestamp locate log10 log1p log2
    luhn_check make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz
    make_ym_interval map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
    map_values map_zip_with mask max_by min_by minute mod monotonically_increasing_id month monthname months_between
    named_struct nanvl negative next_day now nvl nvl2 octet_length overlay parse_json parse_url percentile
    percentile_approx pmod position positive printf quarter raise_error rand randn random regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_substr replace reverse rint rlike schema_of_csv schema_of_json
    sec second sentences sequence session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle size
    skewness slice smallint some sort_array soundex space spark_partition_id split split_part startswith std str_to_map
    string string_agg substr substring_index tinyint to_binary to_char to_csv to_date to_json to_number to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar transform transform_keys
    transform_values translate try_add try_aes_decrypt try_avg try_divide try_element_at try_multiply try_parse_json
    try_subtract try_sum try_to_binary try_to_number try_to_timestamp try_variant_get typeof ucase unbase64 unhex
    uniform unix_date unix_micros unix_millis unix_seconds unix_timestamp url_decode url_encode user uuid variant_get
    version weekday weekofyear window window_time xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long
    xpath_number xpath_short xpath_string xxhash64 zip_with
"""
_SNOWFLAKE = """
    array_cat array_construct array_except array_flatten array_generate_range array_insert array_size array_slice
    array_sort arrayagg as_array as_boolean as_char as_date as_decimal as_double as_integer as_number as_object as_real
    as_timestamp_ntz as_varchar ascii base64_decode_binary base64_decode_string base64_encode bitand bitnot bitor
    bitshiftleft bitshiftright bitxor booland_agg boolor_agg charindex check_json coalesce collation compress
    conditional_change_event conditional_true_event convert_timezone current_account current_available_roles
    current_client current_database current_region current_role current_schema current_schemas current_session
    current_statement current_version current_warehouse date_from_parts date_part dateadd datediff dayname
    decompress_string div0 div0null editdistance endswith equal_null factorial filter get get_path getbit
    greatest_ignore_nulls h3_latlng_to_cell hash hash_agg haversine hex_decode_string hex_encode hll hour iff ilike
    insert is_array is_binary is_boolean is_char is_date is_decimal is_double is_integer is_null_value is_object is_real
    is_time is_timestamp_ntz is_varchar jarowinkler_similarity last_day last_query_id least_ignore_nulls listagg log
    md5_hex md5_number_lower64 minhash mode monthname months_between next_day normal nvl nvl2 object_agg
    object_construct object_construct_keep_null object_delete object_insert object_keys object_pick octet_length
    parse_ip parse_json parse_url parse_xml percent_rank pi previous_day randstr ratio_to_report regexp_count
    regexp_instr regexp_substr regexp_substr_all regr_valx regr_valy rlike rpad rtrimmed_length seq1 seq2 seq4 seq8
    sha1_hex sha2_hex skew soundex space split_part square startswith strip_null_value strtok strtok_to_array sysdate
    time_from_parts time_slice timeadd timediff timestamp_from_parts timestampadd to_array to_binary to_boolean to_char
    to_date to_decimal to_double to_geography to_geometry to_json to_number to_numeric to_object to_time to_timestamp
    to_timestamp_ltz to_timestamp_ntz to_timestamp_tz to_varchar to_variant to_xml transform truncate
    try_base64_decode_string try_parse_json try_to_binary try_to_boolean try_to_date try_to_decimal try_to_double
    try_to_number try_to_time try_to_timestamp try_to_timestamp_ntz typeof unicode uniform uuid_string weekiso
    width_bucket xmlget yearofweek yearofweekiso zeroifnull zipf
"""
_SNOWFLAKE_TABLES = "flatten generator result_scan split_to_table strtok_split_to_table"
_BIGQUERY = """
    acos any_value approx_count_distinct approx_quantiles approx_top_count approx_top_sum array_concat array_first
    array_includes array_is_distinct array_last array_length array_reverse array_slice array_to_string array_zip ascii
    bit_and bit_count bit_or bit_xor bool bool_array byte_length char_length chr code_points_to_bytes
    code_points_to_string collate contains_substr corr cosine_distance current_date current_datetime current_time
    current_timestamp date date_add date_bucket date_diff date_from_unix_date date_sub date_trunc datetime datetime_add
    datetime_bucket datetime_diff datetime_sub datetime_trunc div edit_distance ends_with error euclidean_distance
    extract farm_fingerprint float64 format format_date format_datetime format_time format_timestamp from_base32
    from_base64 from_hex generate_array generate_date_array generate_timestamp_array generate_uuid greatest grouping
    hll_count_extract ieee_divide initcap instr int64 is_inf is_nan json_array json_array_append json_array_insert
    json_extract json_extract_array json_extract_scalar json_extract_string_array json_keys json_object json_query
    json_query_array json_remove json_set json_strip_nulls json_type json_value json_value_array justify_days
    justify_hours justify_interval last_day lax_bool lax_float64 lax_int64 lax_string left length logical_and logical_or
    lpad make_interval normalize normalize_and_casefold nullif octet_length offset ordinal parse_bignumeric parse_date
    parse_datetime parse_json parse_numeric parse_time parse_timestamp percentile_cont percentile_disc rand range
    range_bucket range_contains range_end range_intersect range_overlaps range_start regexp_contains regexp_extract
    regexp_extract_all regexp_instr regexp_replace regexp_substr repeat reverse round rpad s2_cellidfrompoint safe_add
    safe_cast safe_convert_bytes_to_string safe_divide safe_multiply safe_negate safe_offset safe_ordinal safe_subtract
    search session_user sha1 sha256 sha512 soundex split starts_with string string_agg strpos substr time time_add
    time_diff time_sub time_trunc timestamp timestamp_add timestamp_bucket timestamp_diff timestamp_micros
    timestamp_millis timestamp_seconds timestamp_sub timestamp_trunc to_base32 to_base64 to_code_points to_hex to_json
    to_json_string translate typeof unicode unix_date unix_micros unix_millis unix_seconds
"""
_CLICKHOUSE = """
    accuratecast accuratecastornull adddays addhours addminutes addmonths addquarters addseconds addweeks addyears age
    argmax argmin arrayall arrayavg arraycompact arrayconcat arraycount arraycumsum arraydifference arraydistinct
    arrayelement arrayenumerate arrayenumerateuniq arrayexists arrayfill arrayfilter arrayfirst arrayfirstindex
    arrayflatten arrayintersect arrayjoin arraylast arraymap arraymax arraymin arraypopback arraypopfront arrayproduct
    arraypushback arraypushfront arrayreduce arrayresize arrayreverse arrayreversesort arrayslice arraysort arraysplit
    arraystringconcat arraysum arrayuniq arraywithconstant arrayzip assumenotnull bar base58decode base58encode
    base64decode base64encode bitand bitcount bitnot bitor bitshiftleft bitshiftright bitxor cityhash64 colorrgbtohsl
    concatwithseparator countequal countsubstrings crc32 currentdatabase currentuser cutfragment cutquerystring
    cuttofirstsignificantsubdomain cutwww date_add date_diff date_sub date_trunc dateadd datediff datename datesub
    datetrunc decodeurlcomponent dictget dictgetordefault dictgetornull dicthas divideornull domain domainwithoutwww
    editdistance empty encodeurlcomponent endswith extractall extractallgroups extracturlparameter extracturlparameters
    farmhash64 firstsignificantsubdomain formatdatetime formatreadablequantity formatreadablesize
    formatreadabletimedelta fromdaysbsincebc fromunixtimestamp fromunixtimestamp64milli fuzzbits generateuuidv4
    generateuuidv7 geodistance geohashdecode geohashencode geotoh3 greatcircledistance grouparray groupbitand groupbitor
    groupuniqarray halfmd5 has hasall hasany hassubstr hastoken hex identity if indexof intdiv intdivorzero inthash32
    inthash64 ipv4cidrtorange ipv4numtostring ipv4stringtonum ipv6numtostring isfinite isinfinite isipv4string
    isipv6string isnotnull isnull isvalidjson isvalidutf8 javahash json_exists json_query json_value jsonarraylength
    jsonextract jsonextractarrayraw jsonextractbool jsonextractfloat jsonextractint jsonextractkeys
    jsonextractkeysandvalues jsonextractraw jsonextractstring jsonextractuint jsonhas jsonkey jsonlength jsontype lefts
    lengthutf8 like lowercardinality lowerutf8 makedate makedate32 makedatetime makedatetime64 mapadd mapapply
    mapcontains mapfilter mapkeys mapsubtract mapvalues match materialize max2 metrohash64 min2 modulo modulopositive
    multifuzzymatchany multiif multimatchany multisearchallpositions multisearchany murmurhash2_64 murmurhash3_64
    ngramdistance normalizedquery normalizequery notempty notlike now64 numbers parsedatetime parsedatetime64besteffort
    parsedatetimebesteffort parsedatetimebesteffortornull path pathfull plus pointinpolygon polygonareacartesian port
    positioncaseinsensitive positionutf8 protocol querystring rand32 rand64 randconstant randomstring range
    reinterpretasint64 replaceall replaceone replaceregexpall replaceregexpone reverseutf8 seriesdecomposefft sha224
    sha256 sha512 simplejsonextractint simplejsonextractstring siphash64 splitbychar splitbynonalpha splitbyregexp
    splitbystring splitbywhitespace startswith stem substringindex substringutf8 subtractdays subtracthours
    subtractminutes subtractmonths subtractquarters subtractseconds subtractweeks subtractyears timeslot timeslots
    timezone timezoneof tobool todate todate32 todateornull todateorzero todatetime todatetime64 todatetimeornull today
    todayofmonth todayofweek todayofyear todecimal128 todecimal32 todecimal64 tofixedstring tofloat32 tofloat64
    tofloat64ornull tohour toint128 toint16 toint256 toint32 toint32ornull toint64 toint64ornull toint8 tointervalday
    tointervalhour tointervalminute tointervalmonth tointervalsecond tointervalweek tointervalyear toipv4 toipv6
    toisoweek toisoyear tojsonstring tolastdayofmonth tolowcardinality tominute tomonday tomonth tonullable topquarter
    toquarter torelativedaynum torelativehournum torelativemonthnum torelativeweeknum tosecond tostartofday
    tostartoffifteenminutes tostartoffiveminutes tostartofhour tostartofinterval tostartofisoyear tostartofminute
    tostartofmonth tostartofquarter tostartofsecond tostartoftenminutes tostartofweek tostartofyear tostring totime
    totimezone totypename touint16 touint256 touint32 touint64 touint64ornull touint8 tounixtimestamp
    tounixtimestamp64milli touuid toweek toyear toyearweek toyyyymm toyyyymmdd toyyyymmddhhmmss transform trimboth
    trimleft trimright truncate tumble tuple tupleelement unhex uniq uniqcombined uniqexact uniqhll12 upperutf8 uptime
    uuidnumtostring uuidstringtonum validutf8 version week wordshinglesimhash wyhash64 xxhash32 xxhash64 yesterday
"""
_CLICKHOUSE_TABLES = "generate_series generaterandom generateseries null numbers numbers_mt values zeros zeros_mt"
_TSQL = """
    ascii atn2 avg binary_checksum bit_count charindex checksum checksum_agg choose col_length col_name columnproperty
    compress concat_ws convert cot count_big cume_dist databasepropertyex datalength date_bucket datefromparts datename
    datepart datetime2fromparts datetimefromparts datetimeoffsetfromparts day db_id db_name decompress degrees
    difference edit_distance edit_distance_similarity eomonth error_message format generate_series get_bit getdate
    getutcdate grouping grouping_id has_perms_by_name hashbytes host_name iif index_col indexproperty is_member
    is_rolemember is_srvrolemember isdate isjson isnull isnumeric jaro_winkler_distance jaro_winkler_similarity
    json_array json_modify json_object json_path_exists json_query json_value left_shift len log10 ltrim month nchar
    newid object_definition object_id object_name object_schema_name objectproperty objectpropertyex parse parsename
    patindex percentile_cont percentile_disc pi quotename radians rand replicate right_shift rowcount_big rtrim
    schema_id schema_name set_bit sign smalldatetimefromparts soundex space square stdev stdevp str string_agg
    string_escape string_split stuff suser_name suser_sname switchoffset sysdatetime sysdatetimeoffset system_user
    sysutcdatetime timefromparts todatetimeoffset translate trim try_convert try_parse type_id type_name typeproperty
    unicode user_id user_name var varp year
"""
_TSQL_TABLES = "containstable freetexttable generate_series openjson string_split"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTIONS: dict[str, frozenset[str]] = {
    "postgres": _names(_POSTGRES),
    "sqlite": _names(_SQLITE),
    "mysql": _names(_MYSQL),
    "trino": _names(_TRINO),
    "spark": _names(_SPARK),
    "snowflake": _names(_SNOWFLAKE),
    "bigquery": _names(_BIGQUERY),
    "clickhouse": _names(_CLICKHOUSE),
    "tsql": _names(_TSQL),
}
# What may stand in FROM. PostgreSQL lets any function stand there.
TABLE_FUNCTIONS: dict[str, frozenset[str]] = {
    "postgres": FUNCTIONS["postgres"],
    "sqlite": _names(_SQLITE_TABLES),
    "mysql": frozenset(),
    "trino": frozenset({"exclude_columns", "sequence", "table", "descriptor"}),
    "spark": frozenset({"explode", "explode_outer", "inline", "posexplode", "range", "stack"}),
    "snowflake": _names(_SNOWFLAKE_TABLES),
    "bigquery": frozenset(),
    "clickhouse": _names(_CLICKHOUSE_TABLES),
    "tsql": _names(_TSQL_TABLES),
}
# Families whose members only compute: geometry everywhere, and what BigQuery writes with a dot.
PREFIXES: dict[str, tuple[str, ...]] = {
    "bigquery": ("st_", "net.", "hll_count.", "kll_quantiles.", "keys.", "safe."),
    "clickhouse": ("h3", "s2", "readwkt", "polygons"),
    "postgres": ("st_",),
    "mysql": ("st_", "mbr"),
    "trino": ("st_",),
    "snowflake": ("st_", "h3_"),
    "spark": ("st_", "h3_"),
}
_MODEL = "calls a model outside the engine"
REFUSED_CLASSES: dict[str, str] = {
    "AIAgg": _MODEL,
    "AIClassify": _MODEL,
    "AIEmbed": _MODEL,
    "AIForecast": _MODEL,
    "AIGenerate": _MODEL,
    "AISimilarity": _MODEL,
    "AISummarizeAgg": _MODEL,
    "DynamicIdentifier": "names a table or column in a string",
    "GenerateBool": _MODEL,
    "GenerateDouble": _MODEL,
    "GenerateEmbedding": _MODEL,
    "GenerateInt": _MODEL,
    "GenerateTable": _MODEL,
    "GenerateText": _MODEL,
    "MLForecast": _MODEL,
    "MLTranslate": _MODEL,
    "NextValueFor": "advances a sequence",
    "Predict": _MODEL,
    "ReadCSV": "reads files of the server",
    "ReadParquet": "reads files of the server",
    "Secret": "reads a secret",
    "ToFile": "writes a file",
}
# Settings that current_setting() and SHOW may tell: none is a secret, a path or an address.
SETTINGS: frozenset[str] = _names("""
        application_name block_size bytea_output client_encoding client_min_messages datestyle
        default_text_search_config default_transaction_isolation extra_float_digits integer_datetimes intervalstyle
        is_superuser lc_collate lc_ctype lc_messages lc_monetary lc_numeric lc_time lock_timeout max_connections
        max_identifier_length max_index_keys max_parallel_workers role search_path server_encoding server_version
        server_version_num session_authorization standard_conforming_strings statement_timeout timezone
        transaction_isolation transaction_read_only work_mem
""")
# What may follow SHOW where sqlglot has no tree for it.
SHOWN: dict[str, frozenset[str]] = {
    "postgres": SETTINGS,
    "mysql": _names("collation columns create databases engines fields full index indexes keys schemas table tables"),
    "trino": _names("catalogs columns create functions schemas stats tables"),
    "spark": _names(
        "catalogs columns create databases functions namespaces partitions schemas tables tblproperties views"
    ),
    "snowflake": _names("columns databases functions objects schemas tables terse views"),
    "clickhouse": _names("columns create databases dictionaries fields functions full index indexes tables"),
}
