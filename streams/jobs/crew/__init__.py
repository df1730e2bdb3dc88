"""Processes that share the partitions of one job."""
