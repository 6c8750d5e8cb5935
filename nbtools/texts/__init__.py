"""Texts: read within limits, shown as they are, and cleared of secrets."""
