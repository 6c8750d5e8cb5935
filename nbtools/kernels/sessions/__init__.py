"""Named sessions, copies of them, and the way back to before their runs."""
