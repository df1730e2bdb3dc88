"""`braid dead-letters show`: one letter, its headers, and a redacted excerpt of its content."""

from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.text import Text

from schemas.errors import DecodeError
from streams.log.letter_list import dead_letter
from streams.log.reader import LogReader
from streams.log.record import Placed
from streams.log.terminal_text import clean, cut, json_of, line, moment, visible
from streams.log.topics import BY_NAME
from streams.views.layout import facts
from streams.views.preview import PREVIEW, preview
from streams.views.report import letter_json

HEADER = 200
"""Characters of a header's content."""


async def decoded_original(log: LogReader, placed: Placed) -> dict[str, Any] | None:
    """The record in a letter, redacted, if it is valid for its topic: a late or fenced one is."""
    origin = dead_letter(placed).letter.topic
    topic = next((topic for name, topic in BY_NAME.items() if origin.endswith(name)), None)
    if topic is None or topic.record is None:
        return None
    try:
        await log.learn([placed.record])
        return json_of(log.codec.decode(topic, placed.record.value))  # whatever its key is
    except DecodeError:
        return None


def letter_object(placed: Placed, decoded: dict[str, Any] | None) -> dict[str, Any]:
    """The letter as `--json` prints it."""
    topic, partition, record = placed
    shown = preview(record.value)
    headers = [
        {"name": line(name, HEADER), "content": preview(content, HEADER).text} for name, content in record.headers
    ]
    return {
        **clean(letter_json(dead_letter(placed))),
        "letter_at": f"{topic.name}/{partition}/{record.offset}",
        "headers": headers,
        "record": decoded,
        "preview": None if decoded is not None else shown._asdict(),
    }


def letter_page(letter: dict[str, Any]) -> RenderableType:
    """The same for people."""
    known = [
        ("reason", line(letter["reason"])),
        ("message", line(letter["message"], 400)),
        ("original", letter["id"] + f"  ({letter['bytes']:,} bytes)"),
        ("rollout", line(letter["rollout_id"]) or "-"),
        ("written", f"{moment(letter['at'])} UTC, as {letter['letter_at']}"),
    ]
    if letter["cut"]:
        known.append(("cut", line(letter["cut"], 400)))
    if letter["retried_from"]:
        known.append(("put back from", line(", ".join(letter["retried_from"]))))
    return Group(
        Text(letter["id"], style="bold"),
        facts(known),
        Text(),
        Text("Headers", style="bold"),
        facts([(each["name"], line(each["content"])) for each in letter["headers"]]),
        Text(),
        *_content(letter),
        Text(),
    )


def _content(letter: dict[str, Any]) -> list[RenderableType]:
    if letter["record"] is not None:
        text = cut(orjson.dumps(letter["record"], option=orjson.OPT_INDENT_2).decode(), PREVIEW)
        shown_lines = "\n".join(visible(part) for part in text.split("\n"))
        return [Text("The record, redacted", style="bold"), Text(shown_lines)]
    shown = letter["preview"]
    header = f", wire header {shown['header']}" if shown["header"] else ""
    return [Text(f"The content ({shown['form']}{header}), redacted", style="bold"), Text(shown["text"])]
