"""Chat datasets: rows with `messages` [{role, content}], or `conversations` [{from, value}]."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agents.importers.line_error import LineError
from agents.importers.sessions.hub_rows import is_hub_row
from agents.importers.traces.chat import Chat, Mark, tell
from agents.importers.traces.episode_reader import each_alone, is_json, is_part_of_job, members, per_item
from agents.importers.traces.fields import an_array, an_object, array_in, as_text, object_in, rest_of, text_in
from agents.importers.traces.format import Episode, Format, Head, Item, Options
from agents.importers.traces.own_rows import NAMES, OwnRow
from schemas.jsontext import parse

LISTS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat")
"""Possible names of the message column."""

IDS = ("id", "conversation_id", "prompt_id", "instance_id", "uuid", "conv_id", "session_id")

ROLES = {
    "human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant", "ai": "assistant",
    "observation": "tool", "function_response": "tool", "ipython": "tool", "tool_response": "tool",
}  # fmt: skip
"""Other names of roles."""

CALLS = ("function_call", "tool_call")
"""Roles of messages that are calls. Their text is JSON with a name and arguments."""

_SPEAKER = re.compile(
    rb'"(?:role|from)"\s*:\s*"(?:%b)"'
    % "|".join(["system", "developer", "user", "assistant", "tool", "function", *ROLES, *CALLS]).encode()
)
"""The known speakers of a chat. Other values are mail senders or channel members."""

_MARKS = frozenset({
    "trace", "run_type", "state", "simulations", "schema_version", "resourceSpans", "eval", "sessionId", "kind", "response_id",
    "termination_reason",
})  # fmt: skip
"""Members that mark other formats, which also have messages."""


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise objects with a top-level list of messages and without the marks of other formats."""
    return not is_part_of_job(names) and any(is_json(name) and _is_chat(head(name)) for name in names)


def _is_chat(head: bytes) -> bool:
    plain = head.replace(b"\\", b"")  # a Parquet column is a JSON string
    if not _SPEAKER.search(plain) or b'"contents"' in plain:
        return False
    found = members(head)
    return not found.keys() & _MARKS and any(
        found[name].lstrip(b' "').startswith(b"[") for name in LISTS if name in found
    )


def _read(item: Item, _options: Options) -> Iterator[Episode]:
    row = an_object(item.value, "")
    if is_hub_row(row):
        raise LineError(
            "trace",
            "a session of the Hub, whose messages have lost the calls; import it as claude-code, codex, pi or sts",
        )
    name = next((each for each in LISTS if each in row), "messages")
    said = [_plain(each) for each in an_array(_decoded(row.get(name)), name)]
    own = OwnRow(row)
    system = text_in(row, "system", "system_prompt")
    messages = [
        *([{"role": "system", "content": system}] if system and not _has_system(said) else []),
        *said,
        *_after(own, row),
    ]
    chat = tell(messages, item, _error, where=name, marks=_marks(own, said), spent=own.usage)
    key = next((row[each] for each in IDS if row.get(each) is not None), None)
    status = own.status if own.is_own else "answered" if chat.writer.ends_with_text else None
    made = Episode(
        file=item.file, position=item.position, run=item.run, task_key=item.position if key is None else as_text(key),
        source=rest_of(row, name, "tools", "functions", "system", "system_prompt", *(NAMES if own.is_own else ())), record=row,
        system=chat.system, tools=_tools(row), events=chat.writer.finish(answers=own.answers(status)), info=_info(row, chat) | own.info(),
        unreadable=chat.unreadable, status=status, error=own.error, verdicts=own.verdicts("messages"),
    )  # fmt: skip
    yield replace(made, **own.place())


def _decoded(value: Any) -> Any:
    """Parse a column that is JSON text, as in Parquet."""
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError:
        return value


def _plain(message: Any) -> Any:
    """Return a message with the usual field names."""
    value = _decoded(message)
    if not isinstance(value, dict):
        return value
    role = value.get("role", value.get("from"))
    if role in CALLS:
        call = _decoded(value.get("value", value.get("content")))
        return {"role": "assistant", "content": None, "tool_calls": call if isinstance(call, list) else [call]}
    named = {"role": ROLES.get(role, role) if isinstance(role, str) else role}
    if "content" not in value:
        named["content"] = value.get("value", value.get("text"))
    left = {
        each: found
        for each, found in value.items()
        if each not in ("role", "from", *(("value", "text") if "content" in named else ()))
    }
    return named | left


def _has_system(messages: Sequence[Any]) -> bool:
    return bool(messages) and isinstance(messages[0], dict) and messages[0].get("role") in ("system", "developer")


def _tools(row: Mapping[str, Any]) -> list[Any] | None:
    tools = _decoded(row.get("tools", row.get("functions")))
    return [_decoded(each) for each in tools] if isinstance(tools, list) else None


def _error(message: Mapping[str, Any], output: Any) -> dict[str, str] | None:
    failed = message.get("is_error") is True or message.get("isError") is True
    return {"message": as_text(output)} if failed else None


def _info(row: Mapping[str, Any], chat: Chat) -> dict[str, Any]:
    agent = object_in(row, "agent") or {"name": text_in(row, "agent")}
    found = {
        "name": text_in(agent, "name"),
        "version": text_in(agent, "version"),
        "model": text_in(row, "model") or chat.writer.last_model,
    }
    return {"agent": found} if any(found.values()) else {}


# -- rows that `braid export` wrote ----------------------------------------------------------------------------------------


def _after(own: OwnRow, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return user messages at the end of the branch. Rows keep them outside the conversation."""
    return [
        {"role": "user", "content": words} for words in array_in(row, "after") if own.is_own and isinstance(words, str)
    ]


def _marks(own: OwnRow, messages: Sequence[Any]) -> list[Mark]:
    """Return the marks of a row: extra facts about messages, by position."""
    if not own.is_own:
        return []
    context, errors, values, given = map(own.places, ("context", "errors", "values", "given"))
    return [
        Mark(context=place in context, failed=place in errors, given=place in given, is_value=place in values)
        for place in range(len(messages))
    ]


FORMAT = Format(
    name="messages",
    about="chat datasets: rows (JSON or Parquet) with `messages` [{role, content, tool_calls}] or `conversations` [{from, value}]",
    rollout="id, else the line",
    verdict="none, except in files that `braid export` wrote",
    unknown="whether an answer was right; usage; which calls failed, unless is_error says so",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=per_item(_read),
)
