"""Exact: values and frames as they were, through forms that would make others of them, and where two differ."""
