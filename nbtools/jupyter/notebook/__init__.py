"""The notebook of a kernel as its page shows it, for agents and for other processes."""
