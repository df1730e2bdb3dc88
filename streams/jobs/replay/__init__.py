"""A bounded, parallel fold of a log: the same bytes, or other rules."""
