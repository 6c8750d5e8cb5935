"""Files as queries read them: text files whole before their types are decided, and files that are elsewhere."""
