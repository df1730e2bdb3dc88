"""The live worker: the crash-safe loop and its driver."""
