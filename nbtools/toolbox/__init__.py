"""The tools we ship."""
