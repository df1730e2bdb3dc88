"""Workspaces: the files of a branch as values, and their snapshots."""
