"""Loopback ports: chosen at the first start, remembered in a file, chosen again only when another program has them.

Clients keep an address in their configuration, so a port stays the same over restarts and crashes wherever it can.
"""

import json
import random
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from streams.cluster.broker.errors import BrokerError

LOOPBACK = "127.0.0.1"
# Below the ranges from which Linux (32768 on) and macOS (49152 on) give ports to outgoing connections. Inside them, a
# client that reconnects while the broker is down can be given the broker's own port and connect to itself; the broker
# then cannot start any more.
RANGE = range(20_000, 30_000)
TRIES = 100

Ports = Mapping[str, int]
"""The port of each listener, by the listener's name."""


def remembered(file: Path) -> Ports | None:
    """The ports of the last start, or None before the first (or when the file is not readable as such)."""
    try:
        ports = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(ports, dict) or not all(isinstance(port, int) for port in ports.values()):
        return None
    return ports


def claim(file: Path, names: tuple[str, ...], say: Callable[[str], None]) -> Ports:
    """A free port for each name, the remembered one if no other program listens there; the result is remembered."""
    before = remembered(file) or {}
    ports: dict[str, int] = {}
    for name in names:
        port = before.get(name)
        if port is not None and not is_free(port):
            say(f"port {port} of {file.parent.name} is taken by another program: choosing a new one")
            port = None
        ports[name] = port or _choose(taken=frozenset(ports.values()))
    file.write_text(json.dumps(ports))
    return ports


def is_free(port: int) -> bool:
    """Whether a server can listen there now; connections that linger from an earlier one do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen()
        except OSError:
            return False
    return True


def _choose(taken: frozenset[int]) -> int:
    # At random, so that brokers that start at the same moment choose different ones.
    for port in random.SystemRandom().sample(RANGE, TRIES):
        if port not in taken and is_free(port):
            return port
    raise BrokerError(f"No free port between {RANGE.start} and {RANGE.stop} on {LOOPBACK}; end what listens there.")
