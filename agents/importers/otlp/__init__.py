"""OpenTelemetry traces: export requests in JSON and protobuf, and what their spans say in two dialects. Pure."""
