"""Checks of signatures, digests and completeness."""
