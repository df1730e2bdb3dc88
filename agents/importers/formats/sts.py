"""STS, the Session Trace Simple Format: session lines that the Hugging Face Hub displays as traces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agents.importers.formats.pi import first_line
from agents.importers.sessions.hub_rows import per_session
from agents.importers.traces.chat import Mark, tell
from agents.importers.traces.episode_reader import each_alone, is_json, is_part_of_job
from agents.importers.traces.fields import object_in, rest_of, text_in
from agents.importers.traces.format import Bad, Episode, Format, Head, Item, Options
from agents.importers.traces.own_rows import OwnRow
from schemas.jsontext import kind_of


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise a first line {type: session} with a harness."""
    return not is_part_of_job(names) and any(
        is_json(name) and b'"harness":' in first_line(head(name)) for name in names
    )


def _read(items: Sequence[Item], _options: Options) -> Iterator[Episode | Bad]:
    for session in _apart(items):
        yield from _session(session)


def _apart(lines: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the sessions of a file; each begins with its header."""
    session: list[Item] = []
    for line in lines:
        if isinstance(line.value, dict) and line.value.get("type") == "session" and session:
            yield session
            session = []
        session.append(line)
    if session:
        yield session


def _session(lines: Sequence[Item]) -> Iterator[Episode | Bad]:
    first = lines[0]
    header = first.value if isinstance(first.value, dict) and first.value.get("type") == "session" else {}
    rest = lines[1:] if header else lines
    said = [line for line in rest if not isinstance(line.value, dict) or line.value.get("type") == "message"]
    own = OwnRow(object_in(header, "braid"))
    if not said and own.error is None:
        yield Bad(first.file, first.position, "", "a session without messages")
        return
    troubles = [bad for line in said if (bad := _trouble(line)) is not None]
    messages = [
        _trouble(line) or (line.value if isinstance(line.value, Bad) else _message(line.value)) for line in said
    ]
    chat = tell(messages, first, marks=[_mark(line.value) for line in said], spent=own.usage)
    beside = [line.value for line in rest if line not in said]
    key = text_in(header, "id") or first.run
    agent = own.agent or {"name": text_in(header, "harness"), "model": chat.writer.last_model}
    status = own.status if own.is_own else "answered" if chat.writer.ends_with_text else None
    made = Episode(
        file=first.file, position=first.position, run=key, task_key=key, record=header, system=chat.system, tools=own.tools,
        source=rest_of(header, "type", "braid") | ({"lines": beside} if beside else {}),
        events=chat.writer.finish(answers=own.answers(status)), unreadable=[*troubles, *chat.unreadable], status=status,
        error=own.error, verdicts=own.verdicts("sts"),
        info={"session_id": own.session_id if own.is_own else text_in(header, "id"), "agent": agent, **own.info()},
    )  # fmt: skip
    yield replace(made, **own.place())


def _trouble(line: Item) -> Bad | None:
    """Return the reason why a line has no message. Returns None for a good line and for one that was reported."""
    value = line.value
    if isinstance(value, Bad) or (isinstance(value, dict) and isinstance(value.get("message"), dict)):
        return None
    field = "message" if isinstance(value, dict) else ""
    found = value.get("message") if isinstance(value, dict) else value
    return Bad(line.file, line.position, field, f"expected an object, found {kind_of(found)}", value)


def _mark(line: Any) -> Mark:
    """Return the notes that `braid export` wrote with a message."""
    extra: Mapping[str, Any] = object_in(line, "braid") if isinstance(line, dict) else {}
    flags = {name: extra.get(name) is True for name in ("context", "failed", "given")}
    return Mark(role=text_in(extra, "role"), is_value=extra.get("value") is True, **flags)


def _message(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message of a line. `braid export` notes separately its media and whether a tool returned nothing."""
    extra = object_in(line, "braid")
    message: dict[str, Any] = line["message"]
    if isinstance(extra.get("parts"), list):
        return message | {"content": extra["parts"]}
    return message | {"content": None} if extra.get("null") is True else message


FORMAT = Format(
    name="sts",
    about="Session Trace Simple Format: {type: session, harness} and message lines, as the Hugging Face Hub shows them",
    rollout="session",
    verdict="none, except in files that `braid export` wrote",
    unknown="which calls failed; usage; whether an answer was right",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=per_session(_read),
    hands_bad=True,
)
