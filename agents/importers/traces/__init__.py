"""Traces of other systems: the shared parts of all import formats. Pure."""
