"""Pages of the reference, made from the code, so that they cannot say anything else: `braid schemas page NAME`."""
