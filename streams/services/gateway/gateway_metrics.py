"""Metrics of the gateway, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

ACK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class GatewayMetrics:
    """The gateway's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "braid_gateway_requests_total", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.items = Counter("braid_gateway_items_total", "Items taken in", registry=self.registry)
        self.records = Counter(
            "braid_gateway_records_total", "Records that the broker acknowledged", ["topic"], registry=self.registry
        )
        self.errors = Counter(
            "braid_gateway_errors_total", "Items and requests refused", ["reason"], registry=self.registry
        )
        self.acknowledged = Histogram(
            "braid_gateway_acknowledge_seconds", "From a request's last record to its last acknowledgement",
            buckets=ACK_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.connections = Gauge("braid_gateway_connections", "Connections that are open", registry=self.registry)
        self.cut = Counter(
            "braid_gateway_connections_cut_total",
            "Connections that the gateway closed",
            ["reason"],
            registry=self.registry,
        )
        self.ready = Gauge("braid_gateway_ready", "1 while the broker takes records", registry=self.registry)


REASONS = {
    400: "syntax", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method", 408: "slow_body", 409: "captured",
    413: "too_large", 415: "content_type", 422: "invalid", 503: "unavailable",
}  # fmt: skip
"""Names of refusals by their status: few enough to be labels."""
