"""Wire: results and lines as JSON."""
