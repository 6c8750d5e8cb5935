"""One memory file for many processes: the process that has it open, and its clients."""
