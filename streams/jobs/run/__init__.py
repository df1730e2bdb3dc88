"""The job of `braid run`: files folded on the embedded log, without a broker."""
