"""Signatures: the parameters of a function or a schema as data."""
