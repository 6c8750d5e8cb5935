"""The process that starts kernels, watches them, and ends them with all they started."""
