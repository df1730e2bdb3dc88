"""A local server that plays the Messages API: it answers as it is told, and counts."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
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


def streamed(
    content: list[dict[str, Any]], stop: str = "end_turn", *, cut_after: int | None = None, error: str | None = None,
    usage: dict[str, int] | None = None,
) -> Response:  # fmt: skip
    """A message as the API streams it; cut off after so many events, or ended by an error event, when told."""
    used = {
        "input_tokens": 100,
        "output_tokens": 1,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 0,
        **(usage or {}),
    }
    head = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": used,
    }  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, part in enumerate(content):
        if part["type"] == "text":
            start, deltas = (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": piece} for piece in _pieces(part["text"])],
            )
        else:
            start = {**part, "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in _pieces(json.dumps(part["input"]))
            ]
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": used["output_tokens"] + 19}},
        {"type": "message_stop"},
    ]
    if error is not None:
        events = [*events[:2], {"type": "error", "error": {"type": error, "message": f"{error}, as told"}}]

    async def body() -> AsyncIterator[bytes]:
        for event in events[:cut_after]:
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        if cut_after is not None:
            raise ConnectionAbortedError("cut off, as told")

    return StreamingResponse(body(), media_type="text/event-stream")


def _pieces(text: str) -> list[str]:
    return [text[start : start + 7] for start in range(0, len(text), 7)]


def refusal(status: int, kind: str, said: str = "", **headers: str) -> Response:
    body = {
        "type": "error",
        "error": {"type": kind, "message": said or f"{kind}, as told"},
        "request_id": f"req_{uuid4()}",
    }
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
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        bound.close()
