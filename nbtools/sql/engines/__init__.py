"""Engines: each runs a judged statement on a database that it opens read-only; this is the second wall."""
