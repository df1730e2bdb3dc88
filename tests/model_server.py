"""A local server that plays models: one script of replies, in the protocol that each request speaks, streamed or whole.

It serves the Messages API (`/v1/messages`), chat completions (`/v1/chat/completions`) and the Responses API (`/v1/responses`),
and keeps every request body. A reply is made of content blocks as the Messages API writes them; `arguments` instead of `input`
gives a call's arguments as raw text. The reasoning of chat completions is written to `reasoning_field`. Agents ask for more than
answers: tokens are counted, models listed, HEAD / answered; everything else, WebSockets included, is refused and kept in `others`.
"""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests import responses_api
from tests.responses_api import pieces as _pieces

Protocol = Literal["messages", "chat", "responses"]
Block = dict[str, Any]

FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "stop"}
"""Ends of a turn, as chat completions name them."""


@dataclass(frozen=True)
class Reply:
    """The model's answers and failures."""

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
        content = contents[turns_of(body)]
        return reply(content, "tool_use" if content[-1]["type"] == "tool_use" else "end_turn", **trouble)

    return play


def turns_of(body: dict[str, Any]) -> int:
    """How often the model has spoken in what a request holds."""
    if "messages" in body:
        return sum(message["role"] == "assistant" for message in body["messages"])
    return responses_api.turns_of(body["input"])


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


def _message(told: Reply, number: int, model: str = "m") -> Block:
    return {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": _message_blocks(told),
        "stop_reason": told.stop, "stop_sequence": None, "usage": _used(told),
    }  # fmt: skip


def _message_events(told: Reply, number: int, model: str) -> list[Block]:
    head = _message(told, number, model) | {
        "content": [],
        "stop_reason": None,
        "usage": _used(told) | {"output_tokens": 1},
    }
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
    given = used["input_tokens"] + used["cache_read_input_tokens"]
    return {
        "prompt_tokens": given,
        "completion_tokens": used["output_tokens"],
        "total_tokens": given + used["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": used["cache_read_input_tokens"]},
        "completion_tokens_details": {"reasoning_tokens": used.get("reasoning_tokens", 0)},
    }


def _chat_finish(told: Reply) -> str:
    return "stop" if told.structured is not None and told.stop == "tool_use" else FINISH.get(told.stop, told.stop)


def _completion(told: Reply, number: int) -> Block:
    choice = {"index": 0, "message": _chat_message(told), "finish_reason": _chat_finish(told)}
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": _chat_usage(told),
    }


def _chat_events(told: Reply, number: int) -> list[Block | str]:
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
    for place in range(max(map(len, rests), default=0)):
        deltas += [{"tool_calls": [rest[place]]} for rest in rests if place < len(rest)]
    chunk = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events: list[Block | str] = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    events.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": _chat_finish(told)}]})
    return [*events, {**chunk, "choices": [], "usage": _chat_usage(told)}, "[DONE]"]


# -- on the wire -----------------------------------------------------------------------------------------------------------


def _response(told: Reply, body: dict[str, Any], number: int) -> Block:
    output = responses_api.output_items(told.content, number)
    return responses_api.whole(body, output, _used(told), name=f"resp_{number}", stop=told.stop)


def _model(body: dict[str, Any]) -> str:
    """The model that was asked for: Claude Code leaves out the thinking of another one when it goes on."""
    return str(body.get("model", "m"))


def whole_reply(told: Reply, protocol: Protocol, body: dict[str, Any], number: int) -> Block:
    """A reply as the protocol has it without streaming."""
    match protocol:
        case "messages":
            return _message(told, number, _model(body))
        case "chat":
            return _completion(told, number)
        case "responses":
            return _response(told, body, number)


def whole_events(told: Reply, protocol: Protocol, body: dict[str, Any], number: int) -> list[Any]:
    """A reply as the events of a stream."""
    match protocol:
        case "messages":
            return list(_message_events(told, number, _model(body)))
        case "chat":
            return list(_chat_events(told, number))
        case "responses":
            return responses_api.events(_response(told, body, number))


def render(told: Reply, protocol: Protocol, body: dict[str, Any], number: int) -> Response:
    """A reply as a response of the protocol."""
    if not body.get("stream"):
        whole = json.dumps(whole_reply(told, protocol, body, number)).encode()
        pieces = [whole[start : start + 40] for start in range(0, len(whole), 40)]
        return StreamingResponse(_sent(pieces, told), media_type="application/json")
    events = whole_events(told, protocol, body, number)
    if told.error is not None:
        error = {"type": told.error, "message": f"{told.error}, as told"}
        events = [*events[:2], {"type": "error", "error": error}]
    named = [_event(event, protocol) for event in events]
    return StreamingResponse(_sent(named, told), media_type="text/event-stream")


def _event(event: Any, protocol: Protocol) -> bytes:
    data = event if isinstance(event, str) else json.dumps(event)
    return (f"event: {event['type']}\n" if protocol != "chat" else "").encode() + f"data: {data}\n\n".encode()


async def _sent(pieces: list[bytes], told: Reply) -> AsyncIterator[bytes]:
    await asyncio.sleep(told.pause_s)
    until = told.cut_after if told.cut_after is not None else told.silent_after
    for piece in pieces[:until]:
        yield piece
    if told.cut_after is not None:
        raise ConnectionAbortedError("cut off, as told")


def _arguments(block: Block) -> str:
    return block["arguments"] if "arguments" in block else json.dumps(block["input"])


class Received(NamedTuple):
    """A request that was made."""

    protocol: Protocol
    body: dict[str, Any]
    headers: dict[str, str]


class ModelServer:
    """The requests and the answers."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.received: list[Received] = []
        self.replies: dict[int, Said] = {}
        """The answers, by the number of the request."""
        self.others: list[str] = []
        """Requests that are no model calls, as method and path."""
        self.url = ""
        """Base URL for the Messages API."""

    @property
    def chat_url(self) -> str:
        """Base URL for chat completions and the Responses API."""
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

    async def responses(self, request: Request) -> Response:
        return await self._take(request, "responses")

    async def count(self, request: Request) -> Response:
        """Tokens of a request that is not made yet."""
        self.others.append(f"{request.method} {request.url.path}")
        return JSONResponse({"input_tokens": len(await request.body()) // 4})

    async def other(self, request: Request) -> Response:
        """Anything else: the start page and the list of models are there, the rest is not."""
        self.others.append(f"{request.method} {request.url.path}")
        if request.headers.get("upgrade") == "websocket":
            return refusal(426, "upgrade_required", "WebSockets are not played here")
        match request.url.path:
            case "/":
                return Response()
            case "/v1/models" if request.method == "GET":
                listed = {"id": "m", "object": "model", "created": 1, "owned_by": "tests"}
                return JSONResponse({"object": "list", "data": [listed], "models": []})
        return refusal(404, "not_found_error", "not played here")

    async def _take(self, request: Request, protocol: Protocol) -> Response:
        body = json.loads(await request.body())
        number = len(self.received)
        self.received.append(Received(protocol, body, dict(request.headers)))
        told = self.replies[number] = await self.play(body, number)
        return told if isinstance(told, Response) else render(told, protocol, body, number)


@contextmanager
def model_server(play: Play) -> Iterator[ModelServer]:
    """The server on a free port of loopback."""
    api = ModelServer(play)
    routes = [
        Route("/v1/messages", api.messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", api.count, methods=["POST"]),
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/v1/responses", api.responses, methods=["POST"]),
        Route("/{path:path}", api.other, methods=["GET", "HEAD", "POST", "PUT", "DELETE"]),
    ]
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    api.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    config = uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off", ws="none")
    server, stopped = uvicorn.Server(config), Future[None]()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(server, bound, stopped)), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        stopped.set_result(None)
        thread.join(10)
        bound.close()


async def _serve(server: uvicorn.Server, bound: socket.socket, stopped: Future[None]) -> None:
    """Serve until told to stop, and end at once: uvicorn's own loop and its shutdown take 0.1 to 0.2 s, for every server."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([bound])
    await server.on_tick(0)  # sets the headers that every response has
    await asyncio.wrap_future(stopped)
    for listener in server.servers:
        listener.close()
    for end in ("close", "abort"):  # in order, and for those that are in the middle of a response as a crash would
        for connection in list(server.server_state.connections):
            getattr(connection.transport, end)()
        await asyncio.sleep(0)
