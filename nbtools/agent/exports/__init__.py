"""What a run becomes: a notebook that makes its calls again, and proves them, and a workflow."""
