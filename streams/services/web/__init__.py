"""The common part of the HTTP servers: connections and their limits, tokens and roles, the process."""
