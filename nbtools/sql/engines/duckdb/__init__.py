"""DuckDB in this process, locked down."""
