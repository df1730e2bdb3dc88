"""Traces of instrumented agents over HTTP, as OpenTelemetry's exporters send them."""
