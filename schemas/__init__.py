"""The records that flow: every record on the log, as a frozen pydantic model with its Avro committed beside it."""
