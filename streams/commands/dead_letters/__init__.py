"""`braid dead-letters`: facts that did not count, why, and putting them back."""
