"""Sample data: twelve scripted rollouts, and the input of the golden files."""
