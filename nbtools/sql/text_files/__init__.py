"""Text files as queries read them: whole before their types are decided, and what is done to their words is told."""
