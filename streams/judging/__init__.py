"""The judge at work: requests come from the log, votes go back to it."""
