"""Notes over HTTP."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY = 64 * 1024
MAX_TEXT = 280
ONE = re.compile(r"/notes/([1-9][0-9]*)")


class Store:
    """Notes by id; safe for threads."""

    def __init__(self) -> None:
        self.notes: dict[int, str] = {}
        self.last = 0
        self.lock = threading.Lock()

    def add(self, text: str) -> int:
        """Keep a note; returns its id."""
        with self.lock:
            self.last += 1
            self.notes[self.last] = text
            return self.last


class Notes(BaseHTTPRequestHandler):
    """One request."""

    store: Store

    def answer(self, status: int, value: object, **headers: str) -> None:
        """Send a JSON body."""
        body = b"" if status == 204 else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        if body:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status: int, why: str) -> None:
        """Send an error."""
        self.answer(status, {"error": why})

    def note(self) -> int | None:
        """The id of the note that the path names, if there is one."""
        match = ONE.fullmatch(self.path)
        number = int(match[1]) if match else None
        return number if number in self.store.notes else None

    def do_GET(self) -> None:
        if self.path == "/notes":
            notes = [{"id": number, "text": text} for number, text in sorted(self.store.notes.items())]
            return self.answer(200, {"notes": notes})
        number = self.note()
        if number is None:
            return self.fail(404, "no such note")
        return self.answer(200, {"id": number, "text": self.store.notes[number]})

    def do_POST(self) -> None:
        if self.path != "/notes":
            return self.fail(405 if ONE.fullmatch(self.path) else 404, "notes are created at /notes")
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.rfile.read(length)
            return self.fail(413, f"at most {MAX_BODY} bytes")
        try:
            value = json.loads(self.rfile.read(length))
        except ValueError:
            return self.fail(422, "not JSON")
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT:
            return self.fail(422, f"text: a string of 1 to {MAX_TEXT} characters")
        number = self.store.add(text)
        return self.answer(201, {"id": number, "text": text}, Location=f"/notes/{number}")

    def do_DELETE(self) -> None:
        if self.path == "/notes":
            return self.fail(405, "notes are deleted one by one")
        number = self.note()
        if number is None or self.store.notes.pop(number, None) is None:
            return self.fail(404, "no such note")
        return self.answer(204, None)

    def do_PUT(self) -> None:
        known = self.path == "/notes" or ONE.fullmatch(self.path)
        self.fail(405 if known else 404, "notes cannot be replaced" if known else "no such path")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def make_server(port: int) -> ThreadingHTTPServer:
    """A server on loopback; port 0 takes a free one."""
    handler = type("Handler", (Notes,), {"store": Store()})
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


if __name__ == "__main__":
    make_server(8080).serve_forever()
