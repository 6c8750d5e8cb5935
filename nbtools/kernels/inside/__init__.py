"""Code that runs in the process of a kernel itself."""
