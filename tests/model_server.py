"""A local server that plays models: one script of replies, in the protocol that each request speaks, streamed or whole.

It serves the Messages API (`/v1/messages`) and chat completions (`/v1/chat/completions`), and keeps every request body. A reply
is made of content blocks as the Messages API writes them; `arguments` instead of `input` gives a call's arguments as raw text.
The reasoning of chat completions is written to `reasoning_field`.
"""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Protocol = Literal["messages", "chat"]
Block = dict[str, Any]

FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "stop"}
"""Ends of a turn, as chat completions name them."""


@dataclass(frozen=True)
class Reply:
    """What the model says, and what goes wrong while it says it."""

    content: list[Block] = field(default_factory=list)
    stop: str = "end_turn"
    structured: Any = None
    """The answer to a forced tool or a JSON schema."""
    tool: str = "answer"
    """The forced tool's name."""
    cut_after: int | None = None
    """The connection is cut after so many events."""
    silent_after: int | None = None
    """The stream ends in order after so many events, without its end."""
    error: str | None = None
    """An error event in place of the rest."""
    usage: dict[str, int] = field(default_factory=dict)
    """Changes of what the Messages API says was used."""
    reasoning_field: str = "reasoning_content"
    call_ids: bool = True
    """Whether chat completions give calls an id and an index."""
    pause_s: float = 0.0
    """Before the first byte."""


Said = Reply | Response

Play = Callable[[dict[str, Any], int], Awaitable[Said]]
"""The answer to a request's body; the number says which request it is, counted from 0."""


def reply(content: list[Block], stop: str = "end_turn", **trouble: Any) -> Reply:
    return Reply(content, stop, **trouble)


def answer(value: Any, *, stop: str = "tool_use", name: str = "answer") -> Reply:
    """A structured answer with this value."""
    return Reply(structured=value, stop=stop, tool=name)


def use(name: str, number: int = 0, **arguments: Any) -> Block:
    """A call of a tool."""
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def thinking(words: str, signature: str = "sig") -> Block:
    return {"type": "thinking", "thinking": words, "signature": signature}


def turns(*contents: list[Block], **trouble: Any) -> Play:
    """Plays turns by where the conversation is, so that any number of branches can ask."""

    async def play(body: dict[str, Any], _number: int) -> Reply:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        content = contents[turn]
        return reply(content, "tool_use" if content[-1]["type"] == "tool_use" else "end_turn", **trouble)

    return play


def prefers(letter: str) -> Play:
    async def play(_body: dict[str, Any], _number: int) -> Reply:
        return answer({"preferred": letter, "reasoning": "because {it} is"})

    return play


def refusal(status: int, kind: str, said: str = "", code: str | None = None, **headers: str) -> Response:
    """An error of the service, in the form that both protocols share."""
    body = {
        "type": "error",
        "error": {"type": kind, "message": said or f"{kind}, as told", "code": code},
        "request_id": f"req_{uuid4()}",
    }
    return JSONResponse(
        body, status_code=status, headers={name.replace("_", "-"): text for name, text in headers.items()}
    )


# -- the Messages API ------------------------------------------------------------------------------------------------------


def _used(told: Reply) -> dict[str, int]:
    plain = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0}
    return plain | told.usage


def _message_blocks(told: Reply) -> list[Block]:
    if told.structured is None:
        return told.content
    return [*told.content, {"type": "tool_use", "id": "toolu_1", "name": told.tool, "input": told.structured}]


def _message(told: Reply) -> Block:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": _message_blocks(told),
        "stop_reason": told.stop, "stop_sequence": None, "usage": _used(told),
    }  # fmt: skip


def _message_events(told: Reply) -> list[Block]:
    head = _message(told) | {"content": [], "stop_reason": None, "usage": _used(told) | {"output_tokens": 1}}
    events: list[Block] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(_message_blocks(told)):
        start, deltas = _block_events(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": told.stop, "stop_sequence": None}
    used = {"output_tokens": _used(told)["output_tokens"]}
    return [*events, {"type": "message_delta", "delta": end, "usage": used}, {"type": "message_stop"}]


def _block_events(block: Block) -> tuple[Block, list[Block]]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": each} for each in _pieces(block["text"])
            ]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": each} for each in _pieces(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signed]
        case "tool_use":
            start = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
            pieces = _pieces(_arguments(block))
            return start, [{"type": "input_json_delta", "partial_json": each} for each in pieces]
    return block, []


# -- chat completions ------------------------------------------------------------------------------------------------------


def _chat_message(told: Reply) -> Block:
    blocks = told.content
    said = "".join(block["text"] for block in blocks if block["type"] == "text")
    if told.structured is not None:
        said = json.dumps(told.structured)
    thoughts = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
    calls = [
        {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": _arguments(block)}}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    message: Block = {"role": "assistant", "content": said or None}
    if told.stop == "refusal":
        message["refusal"] = said or "I will not."
    return message | ({told.reasoning_field: thoughts} if thoughts else {}) | ({"tool_calls": calls} if calls else {})


def _chat_usage(told: Reply) -> Block:
    used = _used(told)
    return {
        "prompt_tokens": used["input_tokens"] + used["cache_read_input_tokens"],
        "completion_tokens": used["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": used["cache_read_input_tokens"]},
        "completion_tokens_details": {"reasoning_tokens": used.get("reasoning_tokens", 0)},
    }


def _chat_finish(told: Reply) -> str:
    return "stop" if told.structured is not None and told.stop == "tool_use" else FINISH.get(told.stop, told.stop)


def _completion(told: Reply) -> Block:
    choice = {"index": 0, "message": _chat_message(told), "finish_reason": _chat_finish(told)}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": _chat_usage(told),
    }


def _chat_events(told: Reply) -> list[Block | str]:
    message = _chat_message(told)
    deltas: list[Block] = [{"role": "assistant", "content": ""}]
    for name in (told.reasoning_field, "content", "refusal"):
        deltas += [{name: piece} for piece in _pieces(message.get(name) or "")]
    starts, rests = [], []
    for index, call in enumerate(message.get("tool_calls", ())):
        known = {"index": index, "id": call["id"]} if told.call_ids else {"index": index}
        starts.append({**known, "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}})
        pieces = _pieces(call["function"]["arguments"])
        rests.append([{"index": index, "function": {"arguments": piece}} for piece in pieces])
    deltas += [{"tool_calls": [start]} for start in starts]
    # Parallel calls come in turns, a piece of each.
    for number in range(max(map(len, rests), default=0)):
        deltas += [{"tool_calls": [rest[number]]} for rest in rests if number < len(rest)]
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events: list[Block | str] = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    events.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": _chat_finish(told)}]})
    return [*events, {**chunk, "choices": [], "usage": _chat_usage(told)}, "[DONE]"]


# -- on the wire -----------------------------------------------------------------------------------------------------------


def render(told: Reply, protocol: Protocol, *, stream: bool) -> Response:
    """A reply as a response of the protocol."""
    if not stream:
        whole = json.dumps(_message(told) if protocol == "messages" else _completion(told)).encode()
        pieces = [whole[start : start + 40] for start in range(0, len(whole), 40)]
        return StreamingResponse(_sent(pieces, told), media_type="application/json")
    events: list[Any] = list(_message_events(told) if protocol == "messages" else _chat_events(told))
    if told.error is not None:
        error = {"type": told.error, "message": f"{told.error}, as told"}
        events = [*events[:2], {"type": "error", "error": error}]
    named = [_event(event, protocol) for event in events]
    return StreamingResponse(_sent(named, told), media_type="text/event-stream")


def _event(event: Any, protocol: Protocol) -> bytes:
    data = event if isinstance(event, str) else json.dumps(event)
    return (f"event: {event['type']}\n" if protocol == "messages" else "").encode() + f"data: {data}\n\n".encode()


async def _sent(pieces: list[bytes], told: Reply) -> AsyncIterator[bytes]:
    await asyncio.sleep(told.pause_s)
    until = told.cut_after if told.cut_after is not None else told.silent_after
    for piece in pieces[:until]:
        yield piece
    if told.cut_after is not None:
        raise ConnectionAbortedError("cut off, as told")


def _arguments(block: Block) -> str:
    return block["arguments"] if "arguments" in block else json.dumps(block["input"])


def _pieces(words: str) -> list[str]:
    return [words[start : start + 7] for start in range(0, len(words), 7)]


class Received(NamedTuple):
    """A request that was made."""

    protocol: Protocol
    body: dict[str, Any]
    headers: dict[str, str]


class ModelServer:
    """What was asked, and how it is answered."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.received: list[Received] = []
        self.replies: dict[int, Said] = {}
        """What was answered, by the number of the request."""
        self.url = ""
        """Base URL for the Messages API."""

    @property
    def chat_url(self) -> str:
        """Base URL for chat completions."""
        return f"{self.url}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [each.body for each in self.received]

    @property
    def calls(self) -> int:
        return len(self.received)

    def base_url(self, protocol: Protocol) -> str:
        return self.url if protocol == "messages" else self.chat_url

    async def messages(self, request: Request) -> Response:
        return await self._take(request, "messages")

    async def chat(self, request: Request) -> Response:
        return await self._take(request, "chat")

    async def _take(self, request: Request, protocol: Protocol) -> Response:
        body = json.loads(await request.body())
        number = len(self.received)
        self.received.append(Received(protocol, body, dict(request.headers)))
        told = self.replies[number] = await self.play(body, number)
        return told if isinstance(told, Response) else render(told, protocol, stream=bool(body.get("stream")))


@contextmanager
def model_server(play: Play) -> Iterator[ModelServer]:
    """The server on a free port of loopback."""
    api = ModelServer(play)
    routes = [
        Route("/v1/messages", api.messages, methods=["POST"]),
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
    ]
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    api.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    config = uvicorn.Config(
        Starlette(routes=routes), log_level="critical", lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        bound.close()
