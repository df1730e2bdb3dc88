"""Compliance: constraints of a task, verdicts of texts, repairs, and the report over runs."""
