"""Tool outputs and branches, truncated to a length that a model can read."""
