"""The verdict for all dialects but DuckDB: sqlglot's tree, by the reviewed rules of each dialect."""
