"""Codex CLI: rollout files below ~/.codex/sessions. A fork or a step back in a session is a branch."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from agents.importers.sessions.codex_steps import CodexSteps, Line, NoteStep, ResultStep, Told, TurnStep, WordStep
from agents.importers.sessions.hub_rows import per_family, session_head
from agents.importers.traces.chat import tell_result
from agents.importers.traces.content import read_content
from agents.importers.traces.episode_reader import base_name, is_json, is_part_of_job, says, tell_unreadable
from agents.importers.traces.fields import as_text, number_in, object_in, rest_of, text_in, whole_in
from agents.importers.traces.format import (
    Bad,
    Episode,
    FileUse,
    Format,
    Head,
    Item,
    Options,
    Part,
    SubAgent,
    call_places,
)
from agents.importers.traces.transcript_writer import TranscriptWriter, Turn
from schemas.jsontext import kind_of, parse

REFUSALS = ("failed to parse function arguments", "unsupported call", "unsupported custom tool call")
"""Prefixes of the program's answer to a call that it cannot execute."""

_LINKS = re.compile(rb'"(id|forked_from_id|parent_thread_id)"\s*:\s*"([^"]{1,200})"')


def _is_session(name: str, head: Head) -> bool:
    return is_json(name) and says(session_head(head(name))[:4096], b"session_meta", b"payload", b"timestamp")


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise lines {timestamp, type, payload} that begin with session_meta.

    Logs inside a benchmark's job belong to that job.
    """
    return not is_part_of_job(names) and any(_is_session(name, head) for name in names)


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Plan a part for each session with its forks and sub-agents. The parent comes first."""
    own = [name for name in names if len(names) == 1 or _is_session(name, head)]
    links = {name: dict(reversed(_LINKS.findall(head(name).partition(b"\n")[0]))) for name in own}
    by_id = {found[b"id"]: name for name, found in reversed(links.items()) if b"id" in found}
    families: dict[str, list[str]] = {}
    for name in own:
        families.setdefault(_eldest(name, links, by_id), []).append(name)
    return [
        Part(base_name(first), tuple(FileUse(name) for name in sorted(members, key=lambda name: name != first)))
        for first, members in families.items()
    ]


def _eldest(name: str, links: Mapping[str, Mapping[bytes, bytes]], by_id: Mapping[bytes, str]) -> str:
    """Return the file of the oldest ancestor of a session that has a file."""
    seen = {name}
    while True:
        found = links[name]
        parent = by_id.get(found.get(b"forked_from_id") or found.get(b"parent_thread_id") or b"")
        if parent is None or parent in seen:
            return name
        seen.add(parent)
        name = parent


@dataclass
class _Session:
    """The lines of a file."""

    file: str
    meta: Mapping[str, Any]
    lines: list[Line]
    unreadable: list[Bad]
    run: str

    @property
    def id(self) -> str:
        return text_in(self.meta, "id", "session_id") or self.run


def _session(items: Sequence[Item]) -> _Session:
    meta: dict[str, Any] = {}
    lines: list[Line] = []
    unreadable: list[Bad] = []
    for number, item in enumerate(items):
        value = item.value
        if not isinstance(value, Bad) and not (isinstance(value, dict) and isinstance(value.get("payload"), dict)):
            field = "payload" if isinstance(value, dict) else ""
            found = value.get("payload") if isinstance(value, dict) else value
            value = Bad(item.file, item.position, field, f"expected an object, found {kind_of(found)}", item.value)
            unreadable.append(value)
        elif isinstance(value, dict) and value.get("type") == "session_meta" and not meta:
            meta = value["payload"]
        ordinal = whole_in(value, "ordinal") if isinstance(value, dict) else None
        lines.append(Line(item.position, number if ordinal is None else ordinal, value))
    return _Session(items[0].file, meta, lines, unreadable, items[0].run)


def _read(items: Sequence[Item], _options: Options) -> Iterator[Episode | Bad]:
    found = [_session(list(lines)) for _, lines in groupby(items, key=lambda item: item.file)]
    by_id = {session.id: session for session in reversed(found)}
    agents = [session for session in found if _parent(session) in by_id and _parent(session) != session.id]
    for session in found:
        if session not in agents:
            yield from _episodes(session, by_id, agents)


def _parent(session: _Session) -> str | None:
    """Return the id of the session that started this one as its sub-agent."""
    spawned = object_in(session.meta, "source", "subagent", "thread_spawn")
    return text_in(session.meta, "parent_thread_id") or text_in(spawned, "parent_thread_id")


def _episodes(session: _Session, by_id: Mapping[str, _Session], agents: Sequence[_Session]) -> Iterator[Episode | Bad]:
    before, missing, root = _history(session, by_id)
    lines = [*before, *session.lines]
    steps = CodexSteps(lines)
    if missing is not None:
        session.unreadable.append(
            Bad(session.file, "", "forked_from_id", f"its parent {missing} is not among the files")
        )
    for number, told in enumerate(steps.read(lines, len(before))):
        writer = _told(told, steps, missing)
        if not writer.turns and not told.steps and not told.ended.error:
            yield Bad(session.file, told.position, "", "a session without messages")
            continue
        events = writer.finish(answers=told.ended.status == "answered")
        instructions = text_in(object_in(session.meta, "base_instructions"), "text") or text_in(
            session.meta, "instructions"
        )
        yield Episode(
            file=session.file, position=told.position, run=root, task_key=root, trial=f"{session.id}#{number}" if number else session.id,
            version=text_in(session.meta, "cli_version"), events=events, system=instructions,
            source=rest_of(session.meta, "base_instructions", "instructions"), record=session.meta,
            info={
                "session_id": session.id,
                "agent": {"name": "codex", "version": text_in(session.meta, "cli_version"), "model": _model(told)},
            },
            status=told.ended.status, error=told.ended.error if told.ended.status != "aborted" else None,
            subagents=_subagents(events, steps, agents), unreadable=() if number else session.unreadable,
        )  # fmt: skip


def _history(session: _Session, by_id: Mapping[str, _Session]) -> tuple[list[Line], str | None, str]:
    """Return the lines before a fork from the parent's file, the id of a missing parent, and the first session."""
    pieces: list[list[Line]] = []
    seen = {session.id}
    while (parent := text_in(session.meta, "forked_from_id")) is not None and parent not in seen:
        end = whole_in(session.meta, "forked_from_ordinal_exclusive")
        if parent not in by_id:
            return _joined(pieces), parent if end is not None else None, parent
        seen.add(parent)
        session = by_id[parent]
        if end is not None:  # otherwise the lines were copied
            pieces.append([line for line in session.lines if line.ordinal < end])
    return _joined(pieces), None, session.id


def _joined(pieces: Iterable[list[Line]]) -> list[Line]:
    return [line for piece in reversed(list(pieces)) for line in piece]


def _model(told: Told) -> str | None:
    return next((step.model for step in reversed(told.steps) if isinstance(step, TurnStep) and step.model), None)


def _told(told: Told, steps: CodexSteps, missing: str | None) -> TranscriptWriter:
    writer = TranscriptWriter()
    if missing is not None:
        writer.note("content_left_out", {"reason": "parent_missing", "count": 1, "parent": missing})
    for step in told.steps:
        match step:
            case TurnStep():
                source = {"items": step.sources} if step.sources else None
                content = read_content(step.parts)
                writer.model(Turn(content, step.calls, step.id, step.model, None, step.usage, step.time, source))
            case WordStep() if step.is_prompt:
                writer.user(step.content, step.time, step.source)
            case WordStep():
                writer.context(step.content, step.time, step.source, step.role)
            case ResultStep():
                _tell_result(writer, step, steps)
            case NoteStep():
                writer.note(step.event, step.data, step.time)
            case Bad():
                tell_unreadable(writer, step)
    return writer


def _tell_result(writer: TranscriptWriter, step: ResultStep, steps: CodexSteps) -> None:
    outcome = steps.outcomes.get(step.call_id or "", {})
    output = step.output
    failed = False
    if isinstance(output, dict) and isinstance(output.get("content"), str | list):  # the format of older versions
        failed, output = output.get("success") is False, output["content"]
    left = rest_of(
        outcome,
        "id",
        "call_id",
        "type",
        "aggregated_output",
        "stdout",
        "stderr",
        "formatted_output",
        "command",
        "prompt",
    )
    source = step.source | ({"execution": left} if left else {})
    tell_result(
        writer, step.call_id, None, output, lambda text: _error(outcome, text, failed=failed), step.time, source
    )


def _error(outcome: Mapping[str, Any], output: Any, *, failed: bool) -> dict[str, str] | None:
    """Return the error of a result.

    The program reports it in a separate event or refuses the call. The output alone never shows it.
    """
    code = number_in(outcome, "exit_code")
    if code is None and isinstance(output, str) and output.startswith('{"output":'):
        code = _exit_code(output)
    if code:
        return {"code": str(code), "message": f"exit code {code}"}
    status = outcome.get("status")
    if status in ("failed", "declined") or outcome.get("success") is False or failed:
        return {"code": as_text(status or "failed"), "message": as_text(output)}
    refused = isinstance(output, str) and output.startswith(REFUSALS)
    return {"message": output} if refused else None


def _exit_code(output: str) -> float | None:
    """Return the exit code from the JSON that older versions gave to the model."""
    try:
        read = parse(output)
    except ValueError:
        return None
    return number_in(object_in(read, "metadata"), "exit_code") if isinstance(read, dict) else None


def _subagents(events: Sequence[Mapping[str, Any]], steps: CodexSteps, agents: Sequence[_Session]) -> list[SubAgent]:
    """Return the sub-agents of a branch, each after the call that started it."""
    places = call_places(events)
    found = []
    for agent in agents:
        place = places.get(steps.agents.get(agent.id, ""))
        if place is None:
            continue
        own = CodexSteps(agent.lines)
        name = text_in(agent.meta, "agent_role", "agent_nickname") or "subagent"
        found += [
            SubAgent(name, place + 1, _told(told, own, None).finish(answers=told.ended.status == "answered"))
            for told in own.read(agent.lines, 0)
        ]
    return found


FORMAT = Format(
    name="codex",
    about="sessions of Codex CLI: rollout-*.jsonl below ~/.codex/sessions",
    rollout="session / forks, and going back in a session",
    verdict="none",
    unknown="the tools on offer; reasoning that the provider encrypts; results of its own searches; whether an answer was right",
    recognise=recognise,
    plan=plan,
    read=per_family(_read),
    hands_bad=True,
)
