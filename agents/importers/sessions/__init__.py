"""Session logs of coding agents: lines that form a tree, and the branches in it."""
