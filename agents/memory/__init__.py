"""Memory: what worked before, found again by the words of the next task."""
