"""The fork runner: a task forked into branches, each a real agent in a real sandbox, on the log from the first event."""
