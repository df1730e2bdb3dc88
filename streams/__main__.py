"""`python -m streams`: the `braid` command for installations without its script."""

from streams.entry import main

main()
