"""Infrastructure: configuration, connections to Kafka and the schema registry, the local broker."""
