"""A local server that plays the Messages API: it answers as it is told, and counts."""

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Play = Callable[[dict[str, Any], int], Awaitable[Response]]
"""The answer to a request's body; the number says which request it is, counted from 0."""


def answer(value: Any, *, stop: str = "tool_use", name: str = "answer") -> Response:
    """A message whose tool call has this input."""
    return message([{"type": "tool_use", "id": "toolu_1", "name": name, "input": value}], stop)


def message(content: list[dict[str, Any]], stop: str = "end_turn") -> Response:
    body = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": stop,
        "stop_sequence": None, "usage": {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 5},
    }  # fmt: skip
    return JSONResponse(body)


def refusal(status: int, kind: str, **headers: str) -> Response:
    body = {"type": "error", "error": {"type": kind, "message": f"{kind}, as told"}}
    return JSONResponse(
        body, status_code=status, headers={name.replace("_", "-"): text for name, text in headers.items()}
    )


def prefers(letter: str) -> Play:
    async def play(_body: dict[str, Any], _number: int) -> Response:
        return answer({"preferred": letter, "reasoning": "because {it} is"})

    return play


class MessagesApi:
    """What was asked, and how it is answered."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    async def take(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        return await self.play(body, len(self.bodies) - 1)

    @property
    def calls(self) -> int:
        return len(self.bodies)


@contextmanager
def messages_api(play: Play) -> Iterator[MessagesApi]:
    """The server on a free port of loopback."""
    api = MessagesApi(play)
    app = Starlette(routes=[Route("/v1/messages", api.take, methods=["POST"])])
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    api.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        bound.close()
