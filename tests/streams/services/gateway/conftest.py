"""Two gateways for all tests here: an open one, and one with tokens. They share their topics; every test has its rollout."""

import uuid
from collections.abc import Iterator

import httpx
import pytest
from pydantic import SecretStr

from streams.cluster.config import Settings, Token
from tests.streams.services.gateway.serving import serving, with_gateway

TOKENS = (
    Token(token=SecretStr("agent-token"), roles=("agent",)),
    Token(token=SecretStr("bound-token"), roles=("agent",), rollout="mine", branch=1),
    Token(token=SecretStr("verifier-token"), roles=("verifier",)),
    Token(token=SecretStr("operator-token"), roles=("operator",)),
)


@pytest.fixture(scope="package")
def house(cluster: Settings) -> Settings:
    """The settings that the gateways of these tests share."""
    return cluster.model_copy(update={"prefix": f"t{uuid.uuid4().hex[:8]}.", "partitions": 4})


@pytest.fixture(scope="package")
def open_url(house: Settings) -> Iterator[str]:
    with serving(house) as url:
        yield url


@pytest.fixture(scope="package")
def guarded_url(house: Settings, open_url: str) -> Iterator[str]:
    with serving(with_gateway(house, tokens=TOKENS, max_body_bytes=4 * 1024 * 1024, redact=True)) as url:
        yield url


@pytest.fixture
def client(open_url: str) -> Iterator[httpx.Client]:
    """A client of the open gateway."""
    with httpx.Client(base_url=open_url, timeout=30) as client:
        yield client


@pytest.fixture
def guarded(guarded_url: str) -> Iterator[httpx.Client]:
    """A client, without a token yet, of the gateway with tokens."""
    with httpx.Client(base_url=guarded_url, timeout=30) as client:
        yield client


@pytest.fixture
def rollout() -> str:
    """A rollout that no other test writes to."""
    return f"r-{uuid.uuid4().hex[:8]}"
