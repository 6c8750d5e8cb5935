"""What runs do with the cells of a notebook that a page shows."""
