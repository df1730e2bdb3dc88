"""The fork runner, wired: which log, which model, which sandboxes."""
