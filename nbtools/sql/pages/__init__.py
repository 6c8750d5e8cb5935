"""Pages: any rows of a table of any size, in milliseconds, sorted and filtered, and what its columns hold.

::

    source           where rows lie: a Parquet file, a frame; each row has a number
    arrangement      sorted and filtered rows: their numbers, computed once
    pager            the door: pages, arrangements, profiles, each on its own cursor
    conditions       comparisons and ranges that a person chose, as SQL
    header_profile   what one column holds: missing values, a histogram or the most frequent values
    shape            the text of a query as source, columns, conditions and order, and back
    cleaning         steps that a person chose for a column, in the query below its filters
    spelling         the same as pandas or polars
    expressions      the words of pandas and polars for comparisons and steps

A page is read by the numbers of its rows: DuckDB reads only the row groups of a Parquet file that hold them, and frames
are sliced. ``ORDER BY … OFFSET`` would sort everything again for each page; the numbers of the rows in their order are
computed once, four bytes each, and a page is read by a piece of them.
"""
