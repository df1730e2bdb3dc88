"""The meaning of verdicts."""
