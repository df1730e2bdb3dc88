"""A small HTTP server that speaks the routes that the client uses, keeps what it gets, and misbehaves on demand."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

Answer = tuple[int, dict[str, Any]]


class Taken(NamedTuple):
    """One request."""

    path: str
    query: str
    token: str | None
    body: Any


class Server:
    """The requests that it got, and how it answers."""

    def __init__(self) -> None:
        self.requests: list[Taken] = []
        self.items: dict[str, dict[str, Any]] = {}
        """Captures by id, in the order in which they came: a repeated id is ignored."""
        self.repeated = 0
        self.answers: list[Answer] = []
        """Answers to the next requests, which are not kept."""
        self.always: Answer | None = None
        self.unanswered = 0
        """So many requests are taken, and their connections closed without an answer."""
        self.held = threading.Event()
        """Requests wait for it before they are read."""
        self.held.set()
        self.url = ""

    def take(self, taken: Taken) -> Answer:
        self.held.wait(60)
        if self.answers:
            return self.answers.pop(0)
        if self.always is not None:
            return self.always
        self.requests.append(taken)
        items = taken.body if isinstance(taken.body, list) else [taken.body]
        for item in items if taken.path.endswith("/captures") else ():
            self.repeated += item["id"] in self.items
            self.items.setdefault(item["id"], item | {"path": taken.path, "query": taken.query})
        return 202, {"accepted": len(items)}

    def captures(self, branch: int = 0) -> list[dict[str, Any]]:
        return [item for item in self.items.values() if f"/branches/{branch}/" in item["path"]]

    def events(self, branch: int = 0) -> list[tuple[str, dict[str, Any]]]:
        return [
            (each["event"]["event"], each["event"]["data"]) for each in self.captures(branch) if each["kind"] == "event"
        ]

    def end(self, branch: int = 0) -> dict[str, Any]:
        (end,) = [item for item in self.captures(branch) if item["kind"] == "end"]
        return end


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients that go away are part of the tests."""


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            parts = urlsplit(self.path)
            taken = Taken(unquote(parts.path), parts.query, self.headers.get("Authorization"), json.loads(raw))
            status, said = server.take(taken)
            if server.unanswered:
                server.unanswered -= 1
                self.close_connection = True
                return
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests clean."""

    http = _Quiet(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.held.set()
        http.shutdown()
        http.server_close()
