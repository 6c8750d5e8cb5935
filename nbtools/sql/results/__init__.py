"""What comes back from a query: its rows, and their forms as objects, text and files."""
