"""Contract: what a tool is, and the one door that every call goes through."""
