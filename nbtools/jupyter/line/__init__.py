"""The line of a magic: its words, its arguments, and the input transform before it."""
