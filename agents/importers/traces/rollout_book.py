"""Episodes gathered into rollouts, and the lines that they become (`docs/lines.md`).

Which index a branch has, what all branches share, and which verdicts are required is known only when the last episode was read.
Until then an episode is a few numbers here and its bytes in a spool.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import orjson

from agents.importers.traces.content import refer_to
from agents.importers.traces.fields import as_text, look
from agents.importers.traces.format import Bad, Episode, SubAgent
from agents.importers.traces.identity import Place, places, rollout_id
from schemas.event_kinds import SUBAGENT_CHANNEL, SUBAGENT_PREFIX
from schemas.jsontext import compact, parse_object

FIRST_MESSAGE = "task"
"""`--group-by task`: episodes with the same first user message are branches of one rollout."""


MAX_EVENT = 3 * 1024 * 1024
"""Bytes of an event; a line has at most 4 MiB. Texts have a limit of their own, before JSON escapes them."""

_ASIDE = ("source", "raw")
"""Members that reach no row."""


class Spool(Protocol):
    """A place for bytes that are read again once."""

    def put(self, data: bytes) -> int:
        """Keep some bytes; returns their number."""

    def get(self, number: int) -> bytes:
        """The bytes of that number."""


@dataclass(frozen=True)
class Grouping:
    """How episodes are put together."""

    run: str | None = None
    join_runs: bool = False
    group_by: str | None = None
    """`task`, or the path of a field."""
    required: tuple[str, ...] | None = None
    """Instead of the verdicts that the file has."""
    subagents: str = "keep"
    close: bool = True


class _Branch(NamedTuple):
    trial: Any
    body: int
    system: int
    tools: int
    place: Place | None


@dataclass
class _Rollout:
    key: Any
    branches: list[_Branch] = field(default_factory=list)
    task: int = -1
    """The spooled task; -2 where branches differ."""
    shown: bool = True
    count: int | None = None
    required: dict[str, None] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


class RolloutBook:
    """The rollouts of an import."""

    def __init__(self, format_name: str, grouping: Grouping, spool: Spool) -> None:
        self._format = format_name
        self._grouping = grouping
        self._spool = spool
        self._rollouts: dict[str, _Rollout] = {}
        self._texts: dict[bytes, int] = {}

    def add(self, episode: Episode) -> Bad | None:
        """Take an episode; returns a rejection for one with nothing in it."""
        if not episode.error and all(event["event"] == "run_start" for event in episode.events):
            return Bad(episode.file, episode.position, "", "an empty episode: no model turn, no call, no message", None)
        first = _first_message(episode.events)
        key, name = self._identity(episode, first)
        rollout = self._rollouts.get(name)
        if rollout is None:
            rollout = self._rollouts[name] = _Rollout(key)
        self._note(rollout, episode, first)
        kept = self._grouping.subagents == "keep"
        events = with_subagents(episode.events, episode.subagents) if kept else list(episode.events)
        events.insert(0, _source_event(self._format, episode))
        trial = None if self._grouping.group_by else episode.trial
        rollout.branches.append(
            _Branch(
                trial if trial is None or isinstance(trial, int | str) else as_text(trial),
                self._spool.put(_body(episode, events)),
                self._text(episode.system),
                self._text(None if not episode.tools else compact(list(episode.tools))),
                None if episode.branch_index is None else Place(episode.branch_index, episode.attempt or 0),
            )
        )
        if not kept:
            for number, sub in enumerate(episode.subagents):
                self.add(_apart(episode, sub, number, name))
        return None

    def lines(self) -> Iterator[bytes]:
        """The lines of all rollouts, each rollout's together, in order of first appearance."""
        for name, rollout in self._rollouts.items():
            yield from self._lines(name, rollout)

    @property
    def counts(self) -> tuple[int, int]:
        """Rollouts and branches."""
        return len(self._rollouts), sum(len(each.branches) for each in self._rollouts.values())

    # -- gathering -----------------------------------------------------------------------------------------------------

    def _identity(self, episode: Episode, first: str | None) -> tuple[Any, str]:
        """The key and the id of an episode's rollout."""
        grouping = self._grouping
        if grouping.group_by is not None:
            key = first if grouping.group_by == FIRST_MESSAGE else look(episode.record, grouping.group_by)
            if key is not None:
                return key, rollout_id(self._format, grouping.run, key)
        if episode.rollout_id is not None:
            return episode.task_key, episode.rollout_id
        run = None if grouping.join_runs else grouping.run or episode.run
        return episode.task_key, rollout_id(self._format, run, episode.task_key)

    def _note(self, rollout: _Rollout, episode: Episode, first: str | None) -> None:
        """Note what a branch says about its rollout."""
        if episode.branches is not None:
            rollout.count = max(rollout.count or 0, episode.branches)
        for verdict in episode.verdicts:
            rollout.required.setdefault(str(verdict.get("name") or verdict["type"]))
        rollout.labels.update(episode.labels)
        task = self._text(episode.task if episode.task is not None else first)
        if task < 0:
            return
        rollout.task = task if rollout.task in (-1, task) else -2
        rollout.shown &= episode.task_shown

    def _text(self, text: str | None) -> int:
        """The number of a text in the spool; each text is there once. -1 for none."""
        if text is None:
            return -1
        digest = sha256(text.encode()).digest()[:16]
        number = self._texts.get(digest)
        if number is None:
            number = self._texts[digest] = self._spool.put(text.encode())
        return number

    def _said(self, number: int) -> str:
        return self._spool.get(number).decode()

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _lines(self, name: str, rollout: _Rollout) -> Iterator[bytes]:
        branches = rollout.branches
        shared_system = _same(each.system for each in branches)
        shared_tools = _same(each.tools for each in branches)
        yield self._opening(name, rollout, shared_system, shared_tools)
        placed = _places(branches)
        for place, branch in zip(placed, branches, strict=True):
            config: dict[str, Any] = {}
            if shared_system is None and branch.system >= 0:
                config["systemPrompt"] = self._said(branch.system)
            if shared_tools is None and branch.tools >= 0:
                config["tools"] = orjson.loads(self._spool.get(branch.tools))
            yield from _branch_lines(name, place, self._spool.get(branch.body), config)
        complete = rollout.count is not None and len({place.branch_index for place in placed}) >= rollout.count
        if self._grouping.close and not complete:
            yield _line({"type": "close", "rollout_id": name})

    def _opening(self, name: str, rollout: _Rollout, system: int | None, tools: int | None) -> bytes:
        line: dict[str, Any] = {"type": "rollout", "rollout_id": name}
        if rollout.task >= 0:
            line["task"] = self._said(rollout.task)
            shown = rollout.shown
        else:  # every branch has its own, or nobody knows
            line["task"] = as_text(rollout.key) if rollout.task == -2 else ""
            shown = False
        if not shown:
            line["task_shown"] = False
        if rollout.count is not None:
            line["branches"] = rollout.count
        required = self._grouping.required
        line["required"] = list(rollout.required if required is None else required)
        if system is not None and system >= 0:
            line["system_prompt"] = self._said(system)
        if tools is not None and tools >= 0:
            line["tools"] = orjson.loads(self._spool.get(tools))
        labels = {"format": self._format, **rollout.labels}
        line["labels"] = {key: labels[key] for key in sorted(labels)}
        return _line(line)


def with_subagents(events: Sequence[dict[str, Any]], subagents: Sequence[SubAgent]) -> list[dict[str, Any]]:
    """The events with those of sub-agents in their places."""
    made = list(events)
    last_first = sorted(enumerate(subagents), key=lambda each: (each[1].at, each[0]), reverse=True)
    for number, sub in last_first:
        mark = {"channel": SUBAGENT_CHANNEL, "trace_id": f"{sub.name}-{number}", "parent_trace_id": ""}
        told = [event | mark | {"event": SUBAGENT_PREFIX + event["event"]} for event in sub.events]
        made[sub.at : sub.at] = told
    return made


def _apart(episode: Episode, sub: SubAgent, number: int, parent: str) -> Episode:
    """A sub-agent as a rollout of its own, labelled with its parent."""
    return Episode(
        file=episode.file, position=episode.position, run=episode.run,
        task_key=[episode.task_key, episode.trial, "subagent", number, sub.name],
        events=sub.events, labels={"parent": parent, "subagent": sub.name}, status=episode.status,
    )  # fmt: skip


def _source_event(format_name: str, episode: Episode) -> dict[str, Any]:
    data: dict[str, Any] = {"format": format_name}
    if episode.version is not None:
        data["version"] = episode.version
    data |= {"file": episode.file, "position": episode.position}
    if episode.source:
        data["source"] = dict(episode.source)
    return {"channel": "status", "event": "import_source", "data": data}


def _first_message(events: Sequence[dict[str, Any]]) -> str | None:
    """The task as the model saw it, or None."""
    for event in events:
        if event["event"] == "run_start":
            task = event["data"].get("task")
            return task if isinstance(task, str) and task else None
        if event["event"] == "message" and event["data"].get("role") == "user":
            content = event["data"].get("content")
            return content if isinstance(content, str) and content else None
    return None


def _body(episode: Episode, events: Sequence[Mapping[str, Any]]) -> bytes:
    """An episode as the spool keeps it: what belongs on other lines, then an event a line."""
    end = None if episode.status is None else {"status": episode.status, "error": episode.error}
    head = {"info": dict(episode.info), "end": end, "verdicts": list(episode.verdicts)}
    return b"\n".join([compact(head).encode(), *(line for event in events for line in _fitted(event))])


def _fitted(event: Mapping[str, Any]) -> list[bytes]:
    """An event as lines; one over the limit has references in place of its longest members, and says so where a row would miss them."""
    text = compact(event).encode()
    if len(text) <= MAX_EVENT:
        return [text]
    data = dict(event["data"])
    for name in sorted(data, key=lambda each: (each not in _ASIDE, -len(compact(data[each])))):
        data[name] = refer_to(data[name])
        text = compact({**event, "data": data}).encode()
        if len(text) <= MAX_EVENT:
            if name in _ASIDE:
                return [text]
            break
    left_out = {"channel": "status", "event": "content_left_out", "data": {"reason": "too_large", "count": 1}}
    return [text, compact(left_out).encode()]


def _branch_lines(name: str, place: Place, body: bytes, config: dict[str, Any]) -> Iterator[bytes]:
    head_text, *events = body.split(b"\n")
    head = orjson.loads(head_text)
    where = {"rollout_id": name, "branch_index": place.branch_index, "attempt": place.attempt}
    beginning = b'{"type":"event",' + orjson.dumps(where)[1:-1] + b',"seq":'
    info = {key: value for key, value in head["info"].items() if value is not None}
    info_text = orjson.dumps(info)[1:-1] + b"," if info else b""
    for seq, event in enumerate(events):
        told = event
        if config and b'"event":"run_start"' in event[:200]:
            told, config = _configured(event, config), {}
        yield b'%b%d,%b"event":%b}\n' % (beginning, seq, info_text, told)
        info_text = b""
    if head["end"] is not None:
        yield _line({"type": "end", **where, **{key: value for key, value in head["end"].items() if value is not None}})
    for verdict in head["verdicts"]:
        yield _line({"type": verdict["type"], **where, **verdict})


def _configured(event: bytes, config: dict[str, Any]) -> bytes:
    """A run_start that says its own system prompt and tools."""
    read = parse_object(event)
    read["data"]["agentConfig"] = {**read["data"].get("agentConfig", {}), **config}
    return compact(read).encode()


def _places(branches: Sequence[_Branch]) -> list[Place]:
    """The places of the branches: those that the trace names, or else those of their trials."""
    named = [each.place for each in branches if each.place is not None]
    return named if len(named) == len(branches) else places([each.trial for each in branches])


def _same(numbers: Iterable[int]) -> int | None:
    """The one number that all have, or None."""
    found = set(numbers)
    return found.pop() if len(found) == 1 else None


def _line(value: Any) -> bytes:
    return compact(value).encode() + b"\n"
