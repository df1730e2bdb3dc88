"""`python -m streams`: the `braid` command where its script is not at hand."""

from streams.entry import main

main()
