"""Notes over HTTP."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Notes(BaseHTTPRequestHandler):
    """One request."""

    def answer(self, status: int, value: object) -> None:
        """Send a JSON body."""
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(501, {"error": "not implemented"})

    do_POST = do_DELETE = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def make_server(port: int) -> ThreadingHTTPServer:
    """A server on loopback; port 0 takes a free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), Notes)


if __name__ == "__main__":
    make_server(8080).serve_forever()
