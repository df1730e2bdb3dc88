"""`braid proxy`: model calls pass through, and each becomes part of its branch."""

import sys
from pathlib import Path
from typing import Annotated

from streams.commands.console_output import print_json
from streams.commands.numbers import PORTS, number
from streams.commands.options import Flag, LogLevel, given


def proxy(
    *,
    host: str | None = None,
    port: Annotated[int | None, number("--port", 0, PORTS)] = None,
    upstream: list[str] | None = None,
    token_ids: Annotated[bool, Flag] = False,
    adopt: Annotated[bool, Flag] = False,
    spool: Path | None = None,
    json: Annotated[bool, Flag] = False,
    log_level: LogLevel = "info",
) -> None:
    """Pass model calls through to their APIs and capture each as part of its branch, until SIGTERM or Ctrl-C.

    Point an agent's base URL at http://127.0.0.1:8791/r/ROLLOUT/b/BRANCH/openai/v1 (or .../anthropic) and change nothing else.
    `braid worker` makes events of the captures. POST .../r/ROLLOUT/b/BRANCH/end ends a branch.

    Example: `braid proxy --upstream openai=http://127.0.0.1:8000`

    Parameters
    ----------
    host
        The address to listen on; any other than loopback needs tokens (`gateway.tokens`).
    port
        The port; 0 takes a free one.
    upstream
        NAME=URL of a model API, without /v1; may be repeated. Without any: those of the configuration, else openai and anthropic.
    token_ids
        Ask for token ids and log-probabilities (vLLM, SGLang), and remove them from the answers again.
    adopt
        Also capture calls that name no branch: conversations with the same opening become branches of one rollout.
    spool
        The folder for captures that are not on the log yet.
    json
        Print the address as one JSON object.
    """
    import asyncio

    import uvloop

    from streams.cluster import structured_logs as logs
    from streams.cluster.config import load
    from streams.cluster.connections import resolve
    from streams.services.proxy.proxy import check_proxy_bind, named_upstreams
    from streams.services.proxy.proxy_server import serve_proxy
    from streams.services.web.server import address_of, listen

    asking = {"adopt": adopt or None, "token_ids": token_ids or None}
    flags = given(host=host, port=port, spool=spool, upstreams=named_upstreams(upstream), **asking)
    settings = resolve(load(proxy=flags))
    check_proxy_bind(settings)
    bound = listen(settings.proxy.host, settings.proxy.port)

    def said() -> None:
        address = address_of(bound)
        if json:
            print_json({"url": address.url, "host": address.host, "port": address.port})
        else:
            sys.stdout.write(
                f"listening on {address.url} (an agent's base URL: {address.url}/r/ROLLOUT/b/BRANCH/openai/v1)\n"
            )
        sys.stdout.flush()

    logs.configure(log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_proxy(settings, bound, said))
