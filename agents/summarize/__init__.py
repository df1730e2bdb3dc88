"""Tool outputs and branches, cut to what a model can read."""
