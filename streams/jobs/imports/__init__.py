"""`braid import`: files of other systems, read and turned into lines."""
