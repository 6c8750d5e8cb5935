"""The grid of rows and columns that the table and the explorer share."""
