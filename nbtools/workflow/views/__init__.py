"""What people see of a run: its graph, a table, a live picture, a report, and a notebook that repeats the run."""
