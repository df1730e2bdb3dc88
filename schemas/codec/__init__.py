"""How records become bytes, quickly: Avro readers and writers in C, or fastavro if there is no C compiler."""
