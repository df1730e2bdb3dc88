"""Rules: what each emission version decides in its own way."""
