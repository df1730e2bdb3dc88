"""Models: one port for every model, with an adapter for each protocol."""
