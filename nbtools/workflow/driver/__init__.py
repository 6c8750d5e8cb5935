"""Drivers: they do what the plan of a run says, and write down what became of it."""
