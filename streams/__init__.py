"""What carries: topics, codec, the live loop, the embedded log, and the `braid` command line."""
