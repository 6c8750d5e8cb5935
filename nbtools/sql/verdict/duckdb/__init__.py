"""DuckDB's verdict: the engine's own syntax tree, checked node by node."""
