"""Session logs of coding agents: their lines form a tree with branches."""
