"""Tools that run scripts, and how a run becomes a result."""
