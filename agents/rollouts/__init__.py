"""The fold of a rollout, its decisions, and the output of a closed one."""
