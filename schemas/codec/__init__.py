"""How records become bytes, quickly: Avro readers and writers in C, with fastavro where there is no C compiler."""
