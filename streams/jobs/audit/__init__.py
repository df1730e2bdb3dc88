"""Audits that read files, tasks and the log, and end."""
