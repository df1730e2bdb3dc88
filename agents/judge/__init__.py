"""Which pairs are asked, and how."""
