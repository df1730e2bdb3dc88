"""The reading side: bounded looks at the log for people, in no consumer group and without writing anything."""
