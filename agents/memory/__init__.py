"""Memory: experience that worked, found again by the words of the next task."""
