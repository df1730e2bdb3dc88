"""`braid judge`: the judge worker, and looks at how the judge behaves."""
