"""Bounded jobs: run, ingest, rank, export, replay, archive, diff, verify."""
