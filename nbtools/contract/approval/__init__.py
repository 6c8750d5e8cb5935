"""Approval: the rules, the labels and the questions that let a call run."""
