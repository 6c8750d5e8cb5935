"""The line of a magic: how it is split into words and arguments, and the input transform that comes first."""
