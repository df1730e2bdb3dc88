"""Criteria: checks defined by a task, run on the files of a branch."""
