"""Tools for commands and processes, and what parses, allows, starts and ends them."""
