"""One memory file in one process: the journal, the DuckDB file, the index over it, and recovery."""
