"""Criteria: checks that a task names, run on what a branch left behind."""
