"""Facts: the records of the log that rollouts are folded from."""
