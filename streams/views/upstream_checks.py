"""Whether the model APIs behind the proxy answer."""

import asyncio
import os

import httpx

from streams.cluster.config import Settings, Upstream
from streams.log.terminal_text import line
from streams.views.machine_checks import Check

PATIENCE_S = 5.0
"""How long an upstream may take to answer."""


async def upstream_checks(settings: Settings) -> list[Check]:
    """Send every configured upstream a request: any answer means that it is there."""
    upstreams = settings.proxy.upstreams
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
        return list(await asyncio.gather(*(_check(client, settings, *each) for each in sorted(upstreams.items()))))


async def _check(client: httpx.AsyncClient, settings: Settings, name: str, upstream: Upstream) -> Check:
    title = f"upstream {name}"
    try:
        answer = await client.get(f"{upstream.url.rstrip('/')}/v1/models")
    except httpx.HTTPError as error:
        detail = line(f"{upstream.url} does not answer: {type(error).__name__}", 300)
        return Check(title, "problem", detail, f"is it running, is proxy.upstreams.{name}.url right?")
    if settings.gateway.tokens and not os.environ.get(upstream.key_variable):
        variable = upstream.key_variable or f"proxy.upstreams.{name}.key_variable"
        detail = f"{upstream.url} answers; {variable} is not set, so that tokens cannot stand for its key"
        return Check(title, "warning", detail, f"set {variable}")
    return Check(title, "ok", f"{upstream.url} answers ({answer.status_code})")
