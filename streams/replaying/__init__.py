"""`braid replay` and `braid archive`: the log read again, bounded, without a broker's group, a clock or a model."""
