"""The fork runner wired to a log and to sandboxes."""
