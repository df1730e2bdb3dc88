"""Training data: rows from a ranked rollout, and the decision whether and in which form they may be trained on."""
