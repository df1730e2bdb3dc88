"""The commands of `braid`, one module each, loaded when they are called."""
