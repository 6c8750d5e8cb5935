"""The same records on a PostgreSQL server, under the same rules."""
