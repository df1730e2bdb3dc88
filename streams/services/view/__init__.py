"""The pages over HTTP: `braid view`."""
