"""A local engine in the shape of vLLM: chat completions that return the ids that it read and sampled, whole or streamed.

Its tokenizer is byte-pair encoding trained here on a few texts; its template writes a conversation as text with marks around each
message. With `forgets` the template leaves the reasoning of earlier turns out, so a later prompt does not go on with the former one.
"""

import itertools
import json
import random
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Reply = dict[str, Any]
"""content, reasoning_content, tool_calls, finish_reason."""

END = 256
BEGIN = 257


class Tokenizer:
    """Byte-pair encoding."""

    def __init__(self, texts: list[str], merges: int = 200) -> None:
        self._merges: dict[tuple[int, int], int] = {}
        self._bytes = {number: bytes([number]) for number in range(256)} | {END: b"<|end|>", BEGIN: b"<|begin|>"}
        words = [list(text.encode()) for text in texts]
        for number in range(258, 258 + merges):
            pairs = Counter(pair for word in words for pair in itertools.pairwise(word))
            if not pairs:
                break
            best = min(pairs, key=lambda pair: (-pairs[pair], pair))
            self._merges[best] = number
            self._bytes[number] = self._bytes[best[0]] + self._bytes[best[1]]
            words = [self._merged(word, best, number) for word in words]

    def encode(self, text: str) -> list[int]:
        ids = list(text.encode())
        for pair, number in self._merges.items():
            ids = self._merged(ids, pair, number)
        return ids

    def decode(self, ids: list[int]) -> str:
        return b"".join(self._bytes[each] for each in ids).decode("utf-8", "replace")

    @property
    def size(self) -> int:
        return len(self._bytes)

    @staticmethod
    def _merged(ids: list[int], pair: tuple[int, int], number: int) -> list[int]:
        made: list[int] = []
        for each in ids:
            if made and (made[-1], each) == pair:
                made[-1] = number
            else:
                made.append(each)
        return made


class Served(NamedTuple):
    """The tokens of one call."""

    prompt_ids: list[int]
    ids: list[int]
    logprobs: list[float]
    version: str


class Engine:
    """The answers that are played, and those that were served."""

    def __init__(
        self, play: Callable[[dict[str, Any], int], Reply], *, forgets: bool = False, tokenizer: Tokenizer | None = None
    ) -> None:
        self._play = play
        self._forgets = forgets
        self.tokenizer = tokenizer or Tokenizer(
            ["Read the file and say hello. The answer is 42. assistant user tool system"]
        )
        self.served: list[Served] = []
        self.bodies: list[dict[str, Any]] = []
        self.answers: list[bytes] = []
        """Of each call what it would have been without token ids."""
        self.version = "step-1"
        self._random = random.Random(7)
        self._lock = threading.Lock()

    def answer(self, body: dict[str, Any]) -> tuple[bytes, str]:
        with self._lock:
            number = len(self.bodies)
            self.bodies.append(body)
            told = self._play(body, number)
            prompt = self._prompt(body["messages"])
            ids = self.tokenizer.encode(_said(told))
            if told.get("finish_reason") != "length":
                ids.append(END)
            logprobs = [_narrow(-self._random.expovariate(1.0)) for _ in ids]
            self.served.append(Served(prompt, ids, logprobs, self.version))
            made = _stream if body.get("stream") else _whole
            asked = (bool(body.get("return_token_ids")), bool(body.get("logprobs")))
            self.answers.append(made(told, self.served[-1], self.tokenizer, number, (False, False)))
            kind = "text/event-stream" if body.get("stream") else "application/json"
            return made(told, self.served[-1], self.tokenizer, number, asked), kind

    def _prompt(self, messages: list[dict[str, Any]]) -> list[int]:
        ids: list[int] = []
        for place, message in enumerate(messages):
            shown = dict(message)
            if self._forgets and place < len(messages) - 1:
                shown.pop("reasoning_content", None)
            ids += [BEGIN, *self.tokenizer.encode(message["role"] + "\n")]
            ids += self.tokenizer.encode(_said(shown))
            ids.append(END)
        return [*ids, BEGIN, *self.tokenizer.encode("assistant\n")]


def _narrow(value: float) -> float:
    """The nearest 32-bit number, as engines compute."""
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def _said(message: dict[str, Any]) -> str:
    """All that a model reads or writes of a message."""
    calls = [json.dumps(call["function"], sort_keys=True) for call in message.get("tool_calls") or ()]
    return "".join(
        [
            f"<think>{message['reasoning_content']}</think>" if message.get("reasoning_content") else "",
            message.get("content") or "",
            *calls,
        ]
    )


def _message(told: Reply) -> dict[str, Any]:
    names = ("content", "reasoning_content", "tool_calls")
    return {"role": "assistant", "content": None} | {name: told[name] for name in names if told.get(name)}


def _finish(told: Reply) -> str:
    return str(told.get("finish_reason") or ("tool_calls" if told.get("tool_calls") else "stop"))


def _content(served: Served, tokenizer: Tokenizer, start: int, end: int) -> dict[str, Any]:
    pairs = zip(served.ids[start:end], served.logprobs[start:end], strict=True)
    return {
        "content": [
            {"token": tokenizer.decode([each]), "logprob": value, "bytes": None, "top_logprobs": []}
            for each, value in pairs
        ]
    }


def _head(number: int, served: Served, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1, "model": "tiny", "policy_version": served.version}


def _whole(told: Reply, served: Served, tokenizer: Tokenizer, number: int, asked: tuple[bool, bool]) -> bytes:
    ids, logprobs = asked
    choice = {
        "index": 0, "message": _message(told), "logprobs": _content(served, tokenizer, 0, len(served.ids)) if logprobs else None,
        "finish_reason": _finish(told), **({"token_ids": served.ids} if ids else {}),
    }  # fmt: skip
    usage = {"prompt_tokens": len(served.prompt_ids), "completion_tokens": len(served.ids), "total_tokens": 0}
    body = {**_head(number, served, "chat.completion"), "choices": [choice], "usage": usage}
    return json.dumps(
        body | ({"prompt_token_ids": served.prompt_ids} if ids else {}), separators=(",", ":"), ensure_ascii=False
    ).encode()


def _stream(told: Reply, served: Served, tokenizer: Tokenizer, number: int, asked: tuple[bool, bool]) -> bytes:
    """One chunk for the role, one for the message, then the end: the ids come in two chunks, as they are sampled."""
    ids, logprobs = asked
    head = _head(number, served, "chat.completion.chunk")
    message = _message(told)
    calls = [{"index": place, **call} for place, call in enumerate(message.pop("tool_calls", ()))]
    delta = {name: value for name, value in message.items() if name != "role" and value} | (
        {"tool_calls": calls} if calls else {}
    )
    half = len(served.ids) // 2
    parts = [
        ({"role": "assistant", "content": ""}, 0, 0, None),
        (delta, 0, half, None),
        ({}, half, len(served.ids), _finish(told)),
    ]
    chunks: list[dict[str, Any]] = []
    for place, (said, start, end, finish) in enumerate(parts):
        choice = {"index": 0, "delta": said, "logprobs": None, "finish_reason": finish}
        if logprobs and end > start:
            choice["logprobs"] = _content(served, tokenizer, start, end)
        if ids and end > start:
            choice["token_ids"] = served.ids[start:end]
        chunks.append(
            {**head, "choices": [choice]} | ({"prompt_token_ids": served.prompt_ids} if ids and not place else {})
        )
    usage = {"prompt_tokens": len(served.prompt_ids), "completion_tokens": len(served.ids), "total_tokens": 0}
    chunks.append({**head, "choices": [], "usage": usage})
    lines = [json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in chunks]
    return "".join(f"data: {each}\n\n" for each in [*lines, "[DONE]"]).encode()


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    """Serve the engine on a free port; gives its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            raw, kind = engine.answer(body)
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = threading.Thread(target=server.serve_forever, daemon=True)
    running.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
