"""A run of the client on any Python: a server, a branch with tools, a call and an end. Prints what arrived; needs nothing else."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from braidstream import Braid

arrived = []


class Handler(BaseHTTPRequestHandler):
    """Keeps every item."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Take a request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        arrived.extend(each.get("kind", "rollout") for each in (body if isinstance(body, list) else [body]))
        self.send_response(202)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_given):
        """Nothing is logged."""


async def look(number):
    """A tool."""
    return number


async def main():
    """One rollout."""
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    async with Braid(f"http://127.0.0.1:{server.server_port}").rollout("r", task="t") as r:
        async with r.branch(0) as run:
            await run.tool(look)(3)
            run.tool(str)(object=1)
            run.model_call({"model": "m", "messages": []}, {"object": "chat.completion"})
            run.answer({"a": 1})
        assert (run.lost, r.lost) == (0, 0)
    print(json.dumps(arrived))


asyncio.run(main())
