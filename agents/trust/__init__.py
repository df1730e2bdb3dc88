"""Trust in verdicts: the signatures of verifiers, and the keys that are trusted."""
