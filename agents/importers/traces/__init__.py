"""Traces of other systems: the pieces that all import formats share. Pure."""
