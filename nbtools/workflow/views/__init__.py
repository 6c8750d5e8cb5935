"""What people see of a run: its graph, a table, a picture that follows it, a report, a notebook that repeats it."""
