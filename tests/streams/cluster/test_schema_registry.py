"""The schema registry behind a password and a certificate."""

import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pydantic import SecretStr, ValidationError

from streams.cluster.config import Security, Settings
from streams.cluster.connections import registry_of
from streams.cluster.schema_registry import RegistryUnreachableError
from tests.streams.services.live.secured import Authority, authority

WANTED = "Basic " + b64encode(b"braid:s3cret").decode()


class Guarded(BaseHTTPRequestHandler):
    """Answers those who know the password."""

    def do_GET(self) -> None:
        good = self.headers.get("Authorization") == WANTED
        body = b'["a-value"]' if good else b'{"message": "who are you?"}'
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def guarded(made: Authority) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Guarded)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.made("broker"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


async def ask(url: str, security: Security) -> bool:
    registry = registry_of(Settings(registry=url, security=security))
    assert registry is not None
    try:
        return await registry.has("a-value")
    finally:
        await registry.close()


async def test_a_registry_that_wants_a_password_over_tls(tmp_path: Path) -> None:
    """The password opens it, a wrong one is refused without being shown, and so is an authority that is not trusted."""
    made = authority(tmp_path / "certificates")
    right = Security(cafile=made.ca, registry_username="braid", registry_password=SecretStr("s3cret"))
    with guarded(made) as url:
        assert await ask(url, right)
        for wrong in ({"registry_password": SecretStr("guess")}, {"registry_username": ""}):
            with pytest.raises(RegistryUnreachableError, match=r"refuses us .*registry_username") as refused:
                await ask(url, right.model_copy(update=wrong))
            assert "guess" not in str(refused.value)
        with pytest.raises(RegistryUnreachableError, match=r"does not answer .*certificate"):
            await ask(url, right.model_copy(update={"cafile": None}))


@pytest.mark.parametrize("url", ["https://user:secret@registry", "registry:8081", "ftp://registry"])
def test_an_address_is_an_address_and_holds_no_password(url: str) -> None:
    """A password in an address would be printed with it."""
    with pytest.raises(ValidationError, match="registry"):
        Settings(registry=url)
