"""Captured branches: raw material (model calls as they went over the wire, a tracer's events) becomes numbered events. Pure."""
