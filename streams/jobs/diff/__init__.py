"""`braid diff`: what changed between two datasets of the same rollouts, and which rule caused it."""
