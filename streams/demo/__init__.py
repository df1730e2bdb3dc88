"""The demo: the sample tasks forked live, and what people see of it."""
