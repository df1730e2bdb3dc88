"""Compliance runs against a log, and their verifier."""
