"""Pages of the reference, made from the code, so that they cannot contradict it: `braid schemas page NAME`."""
