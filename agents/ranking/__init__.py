"""Which branch is better, and how sure that is: Bradley-Terry within a tier, totals, ranks and statistics."""
