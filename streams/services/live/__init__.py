"""The live worker: the crash-safe loop and what it drives."""
