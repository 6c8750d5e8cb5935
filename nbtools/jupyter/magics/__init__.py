"""One module a magic, each with its ``MAGIC``: parse, call, display."""
