"""Models: one port for every model that is asked, with an adapter for each protocol."""
