"""Signals that a branch gamed its tests, found in its files, events and siblings. `agents/fork/looks` has the
experiments.
"""
