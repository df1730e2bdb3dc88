"""Replies of Terminus, the agent of Terminal-Bench: JSON or XML with an analysis, a plan and commands."""

import re
from typing import Any, NamedTuple

from agents.importers.traces.fields import rest_of, text_in
from schemas.jsontext import parse

_WORDS = ("analysis", "state_analysis", "plan", "explanation")
_DONE = ("task_complete", "is_task_complete")
_XML = re.compile(r"<response>(.*?)(?:</response>|\Z)", re.DOTALL)
_KEYS = re.compile(r'<keystrokes(?:\s+duration="([0-9.]+)")?[^>]*>(.*?)</keystrokes>', re.DOTALL)


class Reply(NamedTuple):
    """A parsed reply."""

    text: str
    """The model's text without its commands, or the whole text if no commands are found."""
    commands: list[Any] | None
    """None for a reply without commands. It ends the task, or the agent could not parse it either."""
    rest: dict[str, Any]
    """Everything else."""


def read_reply(text: str) -> Reply:
    """Read a reply of Terminus 1 or 2."""
    found, whole = _object(text)
    if found is None:
        found, whole = _xml(text)
    if found is None:
        return Reply(text, None, {})
    commands = found.get("commands")
    done = any(found.get(name) is True for name in _DONE)
    said = [words for name in _WORDS if (words := text_in(found, name)) is not None]
    rest = rest_of(found, "commands", *_WORDS) | ({} if whole else {"response": text})
    has_commands = isinstance(commands, list) and (bool(commands) or not done)
    return Reply("\n\n".join(said), list(commands) if has_commands and isinstance(commands, list) else None, rest)


def _object(text: str) -> tuple[dict[str, Any] | None, bool]:
    """Return the JSON object of a reply, and whether it is the whole reply."""
    stripped = text.strip()
    for part in (stripped, stripped[stripped.find("{") : stripped.rfind("}") + 1]):
        try:
            found = parse(part)
        except ValueError:
            continue
        if isinstance(found, dict) and "commands" in found:
            return found, part == stripped
    return None, False


def _xml(text: str) -> tuple[dict[str, Any] | None, bool]:
    outer = _XML.search(text)
    if outer is None or "<commands" not in outer[1]:
        return None, False
    found: dict[str, Any] = {name: _tag(outer[1], name) for name in ("analysis", "plan")}
    found["commands"] = [
        {"keystrokes": keys}
        | ({"duration": float(seconds)} if seconds and seconds.count(".") < 2 and seconds != "." else {})
        for seconds, keys in _KEYS.findall(outer[1])
    ]
    found["task_complete"] = (_tag(outer[1], "task_complete") or "").strip() == "true"
    return found, text.strip() == outer[0].strip()


def _tag(text: str, name: str) -> str | None:
    begin = text.find(f"<{name}>")
    end = text.find(f"</{name}>", begin)
    return text[begin + len(name) + 2 : end].strip() if 0 <= begin < end else None
