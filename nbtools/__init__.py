"""nbtools."""
