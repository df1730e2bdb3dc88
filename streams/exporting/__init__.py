"""`braid export`: whole rollouts from the log, as files that trainers load."""
