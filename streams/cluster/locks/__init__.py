"""Locks between processes: below everything else of the cluster, which the local broker uses as well."""
