"""`braid audit`: whether a number, a dataset or a benchmark can be trusted."""
