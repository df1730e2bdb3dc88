"""The demo: the sample tasks forked live, with output for people."""
