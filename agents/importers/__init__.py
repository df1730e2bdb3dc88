"""Input from outside, read tolerantly and turned into facts."""
