"""Agents as their makers ship them, run with no other change than their base URL."""
