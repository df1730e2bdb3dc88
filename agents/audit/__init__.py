"""Statistics, triage and audits, as pure functions: whether a number, a dataset or a benchmark can be trusted."""
