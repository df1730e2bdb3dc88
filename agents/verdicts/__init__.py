"""What a verdict means."""
