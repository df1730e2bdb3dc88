"""Tests run on the sources that lie here: compiled modules of others are refused, before any is imported."""

from schemas.compiled import compiled

if compiled().changed:
    raise SystemExit(
        f"compiled from other sources ({compiled().changed[0]} has changed): run `make setup`, or `make plain` to test without"
    )
