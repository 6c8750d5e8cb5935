"""What the run of a script has in common in all kernels: its output and how it ends."""
