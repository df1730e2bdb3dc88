"""Five hundred malformed inputs: each gets its error at its place, and every good neighbour is in the log."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest

from streams.cluster.config import Settings
from tests.streams.services.gateway.serving import seqs

pytestmark = pytest.mark.kafka

COUNT = 500
PER_BODY = 20
EVENT: dict[str, Any] = {"event": "tool_result", "data": {"output": "ok"}}
WRONG: list[Any] = [None, True, 7, -1, 1.5, "text", "", [], [1], {}, {"a": 1}, 2**70, "x" * 300]


def random_bytes(draw: random.Random) -> bytes:
    return b"\x00" + bytes(byte for byte in draw.randbytes(draw.randint(1, 200)) if byte not in b"\r\n")


def truncated(draw: random.Random) -> bytes:
    text = orjson.dumps({"seq": 1, "event": EVENT})
    return text[: draw.randint(1, len(text) - 1)]


def not_a_number(draw: random.Random) -> bytes:
    return b'{"seq":1,"event":{"event":"a","data":{"x":%s}}}' % draw.choice(
        [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-", b"01"]
    )


def deep(draw: random.Random) -> bytes:
    levels = draw.choice([99, 101, 500, 2000, 100_000])
    return b'{"seq":1,"event":{"event":"a","data":{"x":' + b"[" * levels + b"]" * levels + b"}}}"


def bad_utf8(draw: random.Random) -> bytes:
    bad = draw.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\\ud83d", b"\\udc00x", b"\x00"])
    return b'{"seq":1,"event":{"event":"a","data":{"x":"' + bad + b'"}}}'


def wrong_type(draw: random.Random) -> bytes:
    field = draw.choice(
        [
            "seq",
            "attempt",
            "event",
            "branch_index",
            "rollout_id",
            "temperature",
            "agent",
            "session_id",
            "observed",
            "ended",
        ]
    )
    bad = {
        "seq": [True, -1, 1.5, "text", [], {}, 2**53, 2**70],
        "attempt": [-1, "text", [], {}, 100_000, 1.5],
        "event": [
            None,
            True,
            7,
            [],
            [1],
            {},
            "",
            {"event": 5},
            {"event": "a", "data": [1]},
            {"event": "a", "timestamp_ms": "soon"},
        ],
        "branch_index": [1, "0", [], {}, True],
        "rollout_id": ["other", 7, [], {}],
        "temperature": ["warm", [], {}, 10**400],
        "agent": ["name", 7, [], {"name": 5}, {"unknown": "x"}],
        "session_id": [7, [], {}],
        "observed": ["half", 7, []],
        "ended": ["perhaps", 7, [], {}],
    }[field]
    chosen = draw.choice(bad)
    text = b"1" + b"0" * 400 if chosen == 10**400 else None
    line = {"seq": 1, "event": EVENT, field: None if text else chosen}
    encoded = orjson.dumps(line | {field: "BIG"}) if text or _beyond(chosen) else orjson.dumps(line)
    return encoded.replace(b'"BIG"', text or str(chosen).encode())


def no_object(draw: random.Random) -> bytes:
    return orjson.dumps(draw.choice([None, True, 7, 1.5, "text", "x" * 100_000, [], [EVENT], [[]]]))


def unknown_field(draw: random.Random) -> bytes:
    return orjson.dumps(
        {"seq": 1, "event": EVENT, draw.choice(["Seq", "branch", "x" * 1000, "", "events"]): draw.choice(WRONG[:11])}
    )


def too_large(draw: random.Random) -> bytes:
    return orjson.dumps({"seq": 1, "event": {"event": "a", draw.choice(["data", "trace_id"]): "x"}}).replace(
        b'"data":"x"', b'"data":{"x":"' + b"x" * (1024 * 1024 + draw.randint(0, 1000)) + b'"}'
    ).replace(b'"trace_id":"x"', b'"trace_id":"' + b"x" * (1024 * 1024) + b'"')  # fmt: skip


def _beyond(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= 2**64


KINDS: list[Callable[[random.Random], bytes]] = [
    random_bytes, truncated, not_a_number, deep, bad_utf8, wrong_type, wrong_type, no_object, unknown_field,
]  # fmt: skip


def malformed() -> list[bytes]:
    """The same inputs on every machine; a few of them are large."""
    draw = random.Random(20_261_116)
    found = [draw.choice(KINDS)(draw) for _ in range(COUNT - 12)] + [too_large(draw) for _ in range(12)]
    draw.shuffle(found)
    return found


async def in_parallel(url: str, path: str, bodies: list[bytes], kind: str) -> list[httpx.Response]:
    """The answers to bodies that are sent a few at a time."""
    gate = asyncio.Semaphore(4)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def post(body: bytes) -> httpx.Response:
            async with gate:
                return await client.post(path, content=body, headers={"content-type": kind})

        return await asyncio.gather(*map(post, bodies))


def good(seq: int) -> bytes:
    return orjson.dumps({"seq": seq, "event": EVENT})


def test_malformed_lines_do_not_touch_their_neighbours(open_url: str, house: Settings, rollout: str) -> None:
    """Each of 500 stands between good lines: it has its error at its own line, and all the good ones arrive."""
    path = f"/v1/rollouts/{rollout}/branches/0/events"
    bad = malformed()
    bodies = [
        b"\n".join(line for place in range(start, start + PER_BODY) for line in (good(place), bad[place]))
        for start in range(0, COUNT, PER_BODY)
    ]
    answers = asyncio.run(in_parallel(open_url, path, bodies, "application/x-ndjson"))
    for start, answer in zip(range(0, COUNT, PER_BODY), answers, strict=True):
        assert answer.status_code == 207
        errors = {error["line"]: error for error in answer.json()["errors"]}
        for place in range(PER_BODY):
            error = errors.pop(2 * place + 2, None)
            assert error is not None, bad[start + place][:300]
            assert error["index"] == 2 * place + 1
            assert 400 <= error["status"] < 500
            assert 0 < len(error["reason"]) < 1000
        assert not errors
    assert sorted(seqs(house, rollout)) == list(range(COUNT))


def test_malformed_bodies_are_refused(open_url: str, house: Settings, rollout: str) -> None:
    """As the whole body: a 4xx that says where, no stack trace, and nothing in the log."""
    some = malformed()[::4]
    answers = asyncio.run(in_parallel(open_url, f"/v1/rollouts/{rollout}/branches/0/events", some, "application/json"))
    for bad, answer in zip(some, answers, strict=True):
        assert 400 <= answer.status_code < 500, bad[:300]
        errors = answer.json()["errors"]
        assert errors
        assert all(error["index"] is not None or error["field"] == "body" for error in errors), bad[:300]
        assert "Traceback" not in answer.text
    assert seqs(house, rollout) == []
