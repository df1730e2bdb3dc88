"""Bounded jobs of judging: judge again, calibrate, statistics."""
