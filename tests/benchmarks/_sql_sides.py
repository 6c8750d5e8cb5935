"""The sides of the SQL benchmark: each asks one query and returns a DataFrame."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import Any

Ask = Callable[[str], Any]

SMALL = "select a, sum(b) as s from t where c > 5 and d like 'x%' group by a order by s desc limit 10"
# In the manner of TPC-H 5 and 21, and of the reports of TPC-DS.
TPC_H = """
select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
from customer, orders, lineitem, supplier, nation, region
where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey
  and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'ASIA'
  and o_orderdate >= date '1994-01-01' and o_orderdate < date '1994-01-01' + interval 1 year
  and exists (select * from lineitem l2 where l2.l_orderkey = l_orderkey and l2.l_suppkey <> l_suppkey)
group by n_name having sum(l_extendedprice) > 1000 order by revenue desc
"""
TPC_DS = """
with ssr as (
    select s_store_id, sum(sales_price) as sales, sum(profit) as profit, sum(return_amt) as returns_,
        sum(net_loss) as profit_loss
    from (
        select ss_store_sk as store_sk, ss_sold_date_sk as date_sk, ss_ext_sales_price as sales_price,
            ss_net_profit as profit, cast(0 as decimal(7, 2)) as return_amt, cast(0 as decimal(7, 2)) as net_loss
        from store_sales
        union all
        select sr_store_sk, sr_returned_date_sk, cast(0 as decimal(7, 2)), cast(0 as decimal(7, 2)), sr_return_amt,
            sr_net_loss
        from store_returns
    ) salesreturns, date_dim, store
    where date_sk = d_date_sk and d_date between cast('2000-08-23' as date) and cast('2000-09-06' as date)
        and store_sk = s_store_sk
    group by s_store_id
), csr as (
    select cp_catalog_page_id, sum(sales_price) as sales, sum(profit) as profit,
        rank() over (partition by cp_department order by sum(profit) desc) as rank_within
    from catalog_sales, catalog_page, date_dim
    where cs_catalog_page_sk = cp_catalog_page_sk and cs_sold_date_sk = d_date_sk
    group by cp_catalog_page_id, cp_department
), wsr as (
    select web_site_id, sum(case when ws_net_paid > 0 then ws_net_paid else 0 end) as sales,
        coalesce(sum(ws_net_profit), 0) as profit, count(distinct ws_order_number) as orders
    from web_sales left join web_returns on ws_item_sk = wr_item_sk and ws_order_number = wr_order_number, web_site
    where ws_web_site_sk = web_site_sk
    group by web_site_id
)
select channel, id, sum(sales) as sales, sum(returns_) as returns_, sum(profit) as profit
from (
    select 'store channel' as channel, 'store' || s_store_id as id, sales, returns_, (profit - profit_loss) as profit
    from ssr
    union all
    select 'catalog channel', 'catalog_page' || cp_catalog_page_id, sales, 0, profit from csr where rank_within <= 10
    union all
    select 'web channel', 'web_site' || web_site_id, sales, 0, profit from wsr
) x
group by rollup (channel, id)
qualify row_number() over (order by sales desc) <= 100
order by channel, id limit 100
"""

# What stands in the second and third column of small files.
KINDS: dict[str, Callable[[int], str]] = {
    "numbers": lambda i: f"n{i % 50},{i * 1.25:.2f}",
    "dates": lambda i: f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d},{i * 1.25:.2f}",
    "quotes": lambda i: f'"n, {i % 50}",{i * 1.25:.2f}',
    "codes": lambda i: f"{i % 50:03d},{i * 1.25:.2f}",
    "missing words": lambda i: f"n{i % 50},{'N/A' if i % 9 == 4 else i * 1.25}",
    "a late word": lambda i: f"n{i % 50},{'late' if i == 200 else i * 1.25}",
}


def shell() -> Any:
    """Return an IPython shell for the peers' magics."""
    # jupysql would report each use to its makers.
    os.environ["PLOOMBER_STATS_ENABLED"] = "false"
    from IPython.core.interactiveshell import InteractiveShell

    return InteractiveShell.instance()


def raw(frames: dict[str, Any]) -> Ask:
    """Plain DuckDB: a connection, which sees the frames as registered once."""
    import duckdb

    connection = duckdb.connect()
    for name, frame in frames.items():
        connection.register(name, frame)
    return lambda sql: connection.execute(sql).df()


def scanning(frames: dict[str, Any]) -> Ask:
    """Plain DuckDB as most use it: it finds the frames among the variables of the caller."""
    import duckdb

    connection = duckdb.connect()
    return eval("lambda sql: connection.execute(sql).df()", {"connection": connection, **frames})


def jupysql(frames: dict[str, Any]) -> Ask | None:
    """The magic of jupysql over its own DuckDB connection; it finds no frames on DuckDB 2."""
    if importlib.util.find_spec("sql") is None:
        return None
    import duckdb

    ip = shell()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ip.run_line_magic("load_ext", "sql")
        ip.user_ns["_benchmark"] = duckdb.connect()
        for setting in ("autopandas=True", "feedback=0", "displaycon=False", "displaylimit=0"):
            ip.run_line_magic("config", f"SqlMagic.{setting}")
        ip.run_line_magic("sql", "_benchmark")
    return lambda sql: ip.run_line_magic("sql", sql)


def magic_duckdb(frames: dict[str, Any]) -> Ask | None:
    """The magic of magic_duckdb; it finds no frames on DuckDB 2."""
    if importlib.util.find_spec("magic_duckdb") is None:
        return None
    ip = shell()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ip.run_line_magic("load_ext", "magic_duckdb")
    return lambda sql: ip.run_line_magic("dql", sql)
