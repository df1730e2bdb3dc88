"""The demo's sample data: scripted rollouts, expanded into the lines that `braid ingest` and `braid run` read."""
