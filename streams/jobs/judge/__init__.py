"""Judging in bounded jobs: ask again, calibrate, statistics."""
