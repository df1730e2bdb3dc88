"""Whose verdicts count: signatures of verifiers, and the keys that are trusted."""
