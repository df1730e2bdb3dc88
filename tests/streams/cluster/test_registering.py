"""The registry's client, where several register at the same moment."""

import asyncio

import httpx
import pytest

from schemas.errors import SchemaError
from streams.cluster.schema_registry import Registry


def _answering(*codes: int) -> tuple[Registry, list[str]]:
    """A registry that answers with these codes, one after the other, and what it was asked."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.path}")
        code = codes[len(asked) - 1]
        return httpx.Response(code, json={"id": 7} if code == 200 else {"message": "there already"})

    registry = Registry("http://registry")
    registry._client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return registry, asked


def test_a_conflict_with_somebody_who_does_the_same_is_asked_again() -> None:
    registry, asked = _answering(409, 200, 409, 200)
    assert asyncio.run(registry.register("facts-value", {"type": "string"})) == 7
    asyncio.run(registry.require_backward("facts-value"))
    assert asked == [*["POST /subjects/facts-value/versions"] * 2, *["PUT /config/facts-value"] * 2]


def test_a_schema_that_is_refused_twice_is_refused() -> None:
    registry, asked = _answering(409, 409)
    with pytest.raises(SchemaError, match=r"facts-value refuses the schema .*there already"):
        asyncio.run(registry.register("facts-value", {"type": "string"}))
    assert len(asked) == 2
