"""The log: its records, readers, writers, topics and wire format, over Kafka and over files."""
