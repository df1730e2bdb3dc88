"""What HTTP servers share: connections and their limits, tokens and roles, the process."""
