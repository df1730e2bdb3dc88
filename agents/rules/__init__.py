"""Rules: the decisions that differ between emission versions."""
