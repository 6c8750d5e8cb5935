"""The rules that every store follows, without any input or output: rows, changes, erasure and the search of texts."""
