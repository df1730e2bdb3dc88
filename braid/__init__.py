"""The `braid` command: `python -m braid` does the same."""
