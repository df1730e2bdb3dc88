"""An HTTP server as a process: an address, signals, a graceful end. The application brings its limits in `app.state.served`."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import NamedTuple, cast

import uvicorn
from starlette.applications import Starlette

from schemas.errors import BraidError
from streams.services.web.guard import Connection, Guard, Served

GRACE_S = 15
"""How long requests may take to finish when the server ends: longer than the wait for a broker."""

QUIET = {"uvicorn": logging.WARNING, "aiokafka": logging.CRITICAL}
"""aiokafka logs a missing broker ten times a second; our servers log it once per attempt."""


class ListenError(BraidError):
    """The address cannot be listened on."""


class Address(NamedTuple):
    """The address on which a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


class Server(uvicorn.Server):
    """A server that reports when it listens, and leaves signals to its caller."""

    def __init__(self, app: Starlette, said: Callable[[], None]) -> None:
        served: Served = app.state.served
        guarded = cast("type[asyncio.Protocol]", partial(Connection, Guard(served)))
        config = uvicorn.Config(
            app, http=guarded, ws="none", lifespan="on", log_config=None, access_log=False, server_header=False, proxy_headers=False,
            timeout_keep_alive=ceil(served.config.keep_alive_s), timeout_graceful_shutdown=GRACE_S,
        )  # fmt: skip
        super().__init__(config)
        self._said = said
        self._ending = served.ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then report it."""
        await super().startup(sockets)
        self._said()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn would raise a caught signal again at the end; asked to end, we end with success."""
        yield

    def end(self) -> None:
        """Finish running requests, then stop; on a second call stop at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._ending()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ListenError."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another with --host and --port"
        ) from None


def address_of(bound: socket.socket) -> Address:
    """The address of a socket."""
    host, port, *_ = bound.getsockname()
    return Address(host, port)


async def serve(app: Starlette, bound: socket.socket, said: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT."""
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    server = Server(app, said)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.end)
    await server.serve([bound])
