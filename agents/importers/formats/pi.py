"""Pi: session files below ~/.pi/agent/sessions. Every leaf of a session's tree is a branch."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agents.importers.sessions.hub_rows import per_session, session_head
from agents.importers.sessions.pi_branch import PiBranch, PiEntry
from agents.importers.sessions.session_tree import SessionTree
from agents.importers.traces.episode_reader import each_alone, first_value, is_json, is_part_of_job
from agents.importers.traces.fields import rest_of, text_in
from agents.importers.traces.format import Bad, Episode, Format, Head, Item, Options
from schemas.jsontext import kind_of

_FIRST = b'"type":"session"'


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise a first line {type: session} with a version and without a harness."""
    return not is_part_of_job(names) and any(is_json(name) and _is_pi(first_line(head(name))) for name in names)


def first_line(head: bytes) -> bytes:
    """Return the first line of a session without spaces, or nothing if the file does not begin with {type: session}."""
    plain = first_value(session_head(head)).lstrip(b' \t:"')
    line = plain.partition(b"\n")[0].partition(b"}")[0].replace(b" ", b"")
    return line if line.startswith(b"{") and _FIRST in line else b""


def _is_pi(line: bytes) -> bool:
    return bool(line) and b'"harness":' not in line and (b'"version":' in line or b'"cwd":' in line)


def _session(lines: Sequence[Item], _options: Options) -> Iterator[Episode | Bad]:
    tree, header, unreadable = _gather(lines)
    paths = tree.paths()
    if not paths:
        yield Bad(lines[0].file, lines[0].position, "", "a session without messages")
        return
    key = _identity(paths[0], header, lines[0])
    for number, path in enumerate(paths):
        branch = PiBranch()
        branch.tell(path)
        yield Episode(
            file=lines[0].file, position=branch.position, run=key, task_key=key, trial=branch.leaf,
            version=str(header.get("version")) if "version" in header else None, source=rest_of(header, "type", "version"), record=header,
            events=branch.writer.finish(answers=branch.status == "answered"), status=branch.status, error=branch.error,
            info={"session_id": text_in(header, "id"), "agent": {"name": "pi", "model": branch.model}},
            unreadable=() if number else unreadable,
        )  # fmt: skip


def _identity(path: Sequence[PiEntry], header: Mapping[str, Any], first: Item) -> str:
    """Return the first entry and its time, which forked sessions share; else the session's id or the file's name."""
    entry = next((each.value for each in path if each.value), {})
    name, time = text_in(entry, "id"), text_in(entry, "timestamp")
    return f"{name} {time}" if name and time else text_in(header, "id") or first.run


def _gather(lines: Sequence[Item]) -> tuple[SessionTree[PiEntry], dict[str, Any], list[Bad]]:
    tree: SessionTree[PiEntry] = SessionTree()
    header: dict[str, Any] = {}
    unreadable: list[Bad] = []
    at: dict[str, int] = {}
    last: int | None = None
    for item in lines:
        value = item.value
        if isinstance(value, dict) and value.get("type") == "session" and not header:
            header = value
            continue
        bad = value if isinstance(value, Bad) else _trouble(item)
        name, above = (
            (None, None) if not isinstance(value, dict) else (text_in(value, "id"), text_in(value, "parentId"))
        )
        parent = (
            last if above is None and (not isinstance(value, dict) or "parentId" not in value) else at.get(above or "")
        )
        if above is not None and parent is None:
            parent = last
            bad = bad or Bad(item.file, item.position, "parentId", f"{above} is not before it in the file")
        if bad is not None and bad is not value:
            unreadable.append(bad)
        entry = PiEntry(item.position, value if isinstance(value, dict) and _trouble(item) is None else {}, bad)
        if name is not None and name in at and tree.value(at[name]).value == entry.value:
            continue  # written twice
        last = tree.add(parent, entry, speaks=entry.speaks)
        if name is not None:
            at.setdefault(name, last)
    return tree, header, unreadable


def _trouble(item: Item) -> Bad | None:
    """Return the reason why an entry cannot be read, or None for a good one."""
    value = item.value
    if not isinstance(value, dict):
        return Bad(item.file, item.position, "", f"expected an object, found {kind_of(value)}", value)
    if value.get("type") != "message":
        return None
    message = value.get("message")
    if not isinstance(message, dict):
        return Bad(item.file, item.position, "message", f"expected an object, found {kind_of(message)}", value)
    has_content = message.get("role") in ("user", "assistant", "toolResult", "custom")
    if has_content and not isinstance(message.get("content"), str | list):
        found = kind_of(message.get("content"))
        return Bad(item.file, item.position, "message.content", f"expected a text or parts, found {found}", value)
    return None


FORMAT = Format(
    name="pi",
    about="sessions of Pi: *.jsonl below ~/.pi/agent/sessions",
    rollout="session / leaves of its tree, and forked sessions",
    verdict="none",
    unknown="the system prompt and the tools on offer; whether an answer was right",
    recognise=recognise,
    plan=partial(each_alone, fits=is_json),
    read=per_session(_session),
    hands_bad=True,
)
