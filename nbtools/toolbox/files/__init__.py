"""Tools for files, and how patterns are matched and files put in place."""
