"""Claude Code: session files below ~/.claude/projects. A rewind or a forked session is a branch."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from agents.importers.sessions.claude_branch import ClaudeBranch
from agents.importers.sessions.claude_nodes import ClaudeNodes, ClaudeSession, gather
from agents.importers.sessions.hub_rows import per_family, session_head
from agents.importers.traces.episode_reader import base_name, is_json, is_part_of_job, says
from agents.importers.traces.fields import text_in
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


def _is_session(name: str, head: Head) -> bool:
    return is_json(name) and says(session_head(head(name)), b"sessionId", b"uuid", b"parentUuid", b"message")


def recognise(names: Sequence[str], head: Head) -> bool:
    """Recognise lines with sessionId, uuid, parentUuid and message.

    Logs inside a benchmark's job belong to that job.
    """
    return not is_part_of_job(names) and any(_is_session(name, head) for name in names)


def plan(names: Sequence[str], head: Head) -> list[Part]:
    """Plan a part for each session with its sub-agent files, which are in its folder or in the same folder."""
    own = [name for name in names if not _is_agent(name) and (len(names) == 1 or _is_session(name, head))]
    parts = {name: [FileUse(name)] for name in own}
    stems = {name.removesuffix(".gz").removesuffix(".zst").removesuffix(".jsonl"): name for name in own}
    for name in names:
        if _is_agent(name):
            folder = name.rpartition("/subagents/")[0]
            beside = [each for each in own if base_name(each).encode() in head(name)] if not folder else []
            home = stems.get(folder) or next(iter(beside), None)
            parts.setdefault(home or name, []).append(FileUse(name))
    return [Part(base_name(name), tuple(files)) for name, files in parts.items()]


def _is_agent(name: str) -> bool:
    """Return whether a file is a sub-agent's: agent-<id>.jsonl, with agent-<id>.meta.json."""
    return name.rpartition("/")[2].startswith("agent-")


def _read(items: Sequence[Item], _options: Options) -> Iterator[Episode | Bad]:
    own, *more = (list(lines) for _, lines in groupby(items, key=lambda item: item.file))
    session = gather(own[0].file, own)
    started: dict[str, str] = {}
    for lines in more:
        if _is_agent(lines[0].file):
            _add_agent(session, lines, started)
        else:
            yield from _episodes(gather(lines[0].file, lines), lines[0], {})
    yield from _episodes(session, own[0], started)


def _add_agent(session: ClaudeSession, lines: Sequence[Item], started: dict[str, str]) -> None:
    """Add the file of a sub-agent: its lines or its metadata."""
    name = base_name(lines[0].file).removesuffix(".meta").removeprefix("agent-")
    if ".meta.json" not in lines[0].file:
        for line in lines:
            session.add(line)
    elif isinstance(meta := lines[0].value, dict):
        session.types[name] = text_in(meta, "agentType") or name
        if (call := text_in(meta, "toolUseId")) is not None:
            started[name] = call


def _episodes(session: ClaudeSession, first: Item, started: Mapping[str, str]) -> Iterator[Episode | Bad]:
    paths = session.own.tree.paths()
    if not paths and session.agents:  # a sub-agent's file alone
        session.own = session.agents.pop(next(iter(session.agents)))
        paths = session.own.tree.paths()
    if not paths:
        yield Bad(first.file, first.position, "", "a session without messages")
        return
    key = _identity(session, first)
    left = set(session.agents)
    for number, path in enumerate(paths):
        branch = ClaudeBranch(session.common)
        branch.tell(path)
        events = branch.writer.finish(answers=branch.status == "answered")
        subagents = _subagents(session, branch, events, started, left, last=number == len(paths) - 1)
        version = text_in(session.common, "version")
        yield Episode(
            file=first.file, position=branch.position, run=key, task_key=key, trial=branch.leaf, version=version, events=events,
            source=session.common | ({"lines": session.beside} if session.beside and not number else {}), record=session.common,
            info={
                "session_id": text_in(session.common, "sessionId"),
                "agent": {"name": "claude-code", "version": version, "model": branch.model},
            },
            status=branch.status, error=branch.error, subagents=subagents, unreadable=() if number else session.unreadable,
        )  # fmt: skip


def _identity(session: ClaudeSession, first: Item) -> str:
    """Return the first line's uuid, which forked sessions share; else the session's id or the file's name."""
    return session.own.first or text_in(session.common, "sessionId") or first.run


def _subagents(
    session: ClaudeSession,
    branch: ClaudeBranch,
    events: Sequence[Mapping[str, Any]],
    started: Mapping[str, str],
    left: set[str],
    *,
    last: bool,
) -> list[SubAgent]:
    """Return the sub-agents of a branch, each after the call that started it.

    The last branch includes those without such a call.
    """
    places = call_places(events)
    found = []
    for name, nodes in session.agents.items():
        told = _told(session, nodes)
        task = told[0][0]["data"].get("task") if told else None
        call = started.get(name) or branch.agents.get(name) or branch.prompts.get(task or "")
        place = places.get(call or "")
        if place is None and not (last and name in left):
            continue
        left.discard(name)
        at = len(events) if place is None else place + 1
        found += [SubAgent(session.types.get(name, name), at, each) for each in told]
    return found


def _told(session: ClaudeSession, nodes: ClaudeNodes) -> list[list[dict[str, Any]]]:
    told = []
    for path in nodes.tree.paths():
        branch = ClaudeBranch(session.common)
        branch.tell(path)
        told.append(branch.writer.finish(answers=branch.status == "answered"))
    return told


FORMAT = Format(
    name="claude-code",
    about="sessions of Claude Code: <session>.jsonl below ~/.claude/projects, with the files of its sub-agents",
    rollout="session / rewinds and forked sessions",
    verdict="none",
    unknown="the system prompt, the tools on offer, and the words that the program puts around attachments; whether an answer was right",
    recognise=recognise,
    plan=plan,
    read=per_family(_read),
    hands_bad=True,
)
