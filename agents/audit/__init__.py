"""Whether a number, a dataset or a benchmark can be trusted: statistics, triage and audits, as pure functions."""
