"""Signs that a branch gamed its tests: read off files, acts and siblings. Experiments are in `agents/fork/looks`."""
