"""DuckDB and SQLite in a confined process that can be killed: the third wall."""
