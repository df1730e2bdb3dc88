"""Training data: rows from a ranked rollout, and what decides whether and in which form they may be trained on."""
