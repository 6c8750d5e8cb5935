"""Calls and their results as people see them: fields, what a call would change, answers, pictures."""
