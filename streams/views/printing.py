"""One record on one line: for people, or as JSON."""

from typing import Any

import orjson

from schemas.errors import DecodeError
from streams.log.letter_list import dead_letter
from streams.log.reader import Log, Stored
from streams.log.terminal_text import clean, json_of, line, moment
from streams.log.topics import DEAD_LETTERS
from streams.views.gist import gist
from streams.views.report import letter_json

KEY = 32
"""Characters of a key in a human line."""


async def print_human(log: Log, stored: Stored) -> str:
    """Where it stands, when it came, whose it is, what it is, and its gist."""
    what, said = await _kind_and_gist(log, stored)
    key = line((stored.key or b"").decode(errors="replace"), KEY) or "-"
    return f"{stored.partition}@{stored.offset:<6} {moment(stored.at)}  {key:<20} {what:<14} {said}"


async def print_json(log: Log, stored: Stored) -> str:
    """The record with where it stands, compact and redacted."""
    whole: dict[str, Any] = {
        "topic": stored.topic.name,
        "partition": stored.partition,
        "offset": stored.offset,
        "at": stored.at,
        "key": None if stored.key is None else clean(stored.key.decode(errors="replace")),
    }
    if stored.topic is DEAD_LETTERS:
        whole |= {"type": "DeadLetter", "letter": clean(letter_json(dead_letter(stored)))}
    else:
        try:
            record = await log.decode(stored)
            whole |= {"type": type(record).__name__, "record": json_of(record)}
        except DecodeError as error:
            whole |= {"type": None, "undecodable": line(str(error)), "bytes": len(stored.value or b"")}
    return orjson.dumps(whole).decode()


async def _kind_and_gist(log: Log, stored: Stored) -> tuple[str, str]:
    if stored.topic is DEAD_LETTERS:
        letter = dead_letter(stored)
        return "DeadLetter", line(f"{letter.letter.reason}: {letter.letter_id}: {letter.letter.message}", 160)
    try:
        record = await log.decode(stored)
    except DecodeError as error:
        return "undecodable", line(f"{len(stored.value or b'')} bytes: {error}", 160)
    return type(record).__name__, gist(record)
