"""`braid gateway`: facts over HTTP."""

import sys
from typing import TYPE_CHECKING, Annotated

from streams.commands.console_output import print_json
from streams.commands.numbers import PORTS, number
from streams.commands.options import Flag, LogLevel, given

if TYPE_CHECKING:
    from streams.cluster.config import Settings


def gateway(
    *,
    host: str | None = None,
    port: Annotated[int | None, number("--port", 0, PORTS)] = None,
    json: Annotated[bool, Flag] = False,
    log_level: LogLevel = "info",
) -> None:
    """Take rollouts, events, verdicts and votes over HTTP, until SIGTERM or Ctrl-C.

    Prints the address once it listens. Listens on loopback unless told otherwise; any other address needs tokens
    (`gateway.tokens` in braid.toml, or BRAID_GATEWAY__TOKENS). Examples of requests are at /docs. With upstreams in
    `[proxy.upstreams]` it is also the capturing proxy (`braid proxy --help`); it takes traces of OpenTelemetry (`braid
    otlp --help`); with `gateway.view` the pages of `braid view` are there, too.

    Example: `braid gateway --port 8790`

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


def run_gateway(configured: "Settings", *, json: bool, log_level: str) -> None:
    """Run the gateway until a signal ends it, and print its address."""
    import asyncio

    import uvloop

    from streams.cluster import structured_logs as logs
    from streams.cluster.connections import resolve
    from streams.cluster.garbage_collector import tune_gc
    from streams.commands.view import view_app
    from streams.services.proxy.proxy_mount import create_gateway
    from streams.services.web.server import address_of, listen, serve

    settings = resolve(configured)
    pages = view_app(settings, mounted=True) if settings.gateway.view else None
    app = create_gateway(settings, pages)
    bound = listen(settings.gateway.host, settings.gateway.port)

    def said() -> None:
        address = address_of(bound)
        if json:
            view = {"url": address.url, "host": address.host, "port": address.port, "docs": f"{address.url}/docs"}
            print_json(view)
        else:
            shown = f"; pages: {address.url}/" if pages is not None else ""
            sys.stdout.write(f"listening on {address.url} (how to send: {address.url}/docs{shown})\n")
        sys.stdout.flush()

    logs.configure(log_level)
    if settings.proxy.upstreams:
        tune_gc()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(app, bound, said))
