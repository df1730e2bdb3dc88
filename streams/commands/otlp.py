"""`braid otlp`: receives traces of instrumented agents, on the usual port of a collector."""

from typing import Annotated

from streams.commands.gateway import run_gateway
from streams.commands.numbers import PORTS, number
from streams.commands.options import Flag, LogLevel, given

PORT = 4318
"""The default port of OTLP over HTTP."""


def otlp(
    *,
    host: str | None = None,
    port: Annotated[int, number("--port", 0, PORTS)] = PORT,
    json: Annotated[bool, Flag] = False,
    log_level: LogLevel = "info",
) -> None:
    """Take traces of instrumented agents (OTLP over HTTP, gen_ai or OpenInference), until SIGTERM or Ctrl-C.

    It is the gateway on the port that exporters use by themselves: an agent that is instrumented with OpenTelemetry needs
    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318, and OTEL_RESOURCE_ATTRIBUTES=braid.rollout_id=ROLLOUT,braid.branch_index=0 to say
    its branch; else each trace is a rollout. `braid worker` makes events of the spans.

    Example: `braid otlp`

    Parameters
    ----------
    host
        The address to listen on.
    port
        The port; 0 takes a free one.
    json
        Print the address as one JSON object.
    """
    from streams.cluster.config import load

    run_gateway(load(gateway=given(host=host, port=port)), json=json, log_level=log_level)
