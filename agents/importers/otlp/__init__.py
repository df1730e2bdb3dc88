"""OpenTelemetry traces: export requests in JSON and protobuf, and two dialects of span attributes. Pure."""
