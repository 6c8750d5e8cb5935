"""What is kept of runs: their records and budgets, what happened in them, and their conversations."""
