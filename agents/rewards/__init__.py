"""Rewards from verdicts."""
