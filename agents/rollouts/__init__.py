"""The fold of a rollout, its decisions, and what a closed one becomes."""
