"""Read input from other programs tolerantly and turn it into facts."""
