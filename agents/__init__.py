"""What decides: pure, synchronous, deterministic cores, one folder per capability."""
