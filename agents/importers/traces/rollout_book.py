"""Gather episodes into rollouts and write their lines (`docs/lines.md`).

Some facts are known only after the last episode: a branch's index, the data that all branches share, and the required
verdicts. Until then the index has a few numbers for each episode, and its bytes are in a spool. A million episodes need
little memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import orjson

from agents.importers.traces.branch_index import BranchIndex
from agents.importers.traces.content import fitting_source, referred
from agents.importers.traces.fields import as_text, look
from agents.importers.traces.format import Bad, Episode, SubAgent
from agents.importers.traces.identity import Place, places, rollout_id
from agents.importers.traces.transcript_writer import MAX_NOTE
from schemas.event_kinds import SUBAGENT_CHANNEL, SUBAGENT_PREFIX
from schemas.jsontext import compact, parse, parse_object

FIRST_MESSAGE = "task"
"""`--group-by task`: episodes with the same first user message are branches of one rollout."""


MAX_EVENT = 3 * 1024 * 1024
"""Maximum bytes of an event; a line has at most 4 MiB. Texts have a separate limit, before JSON escapes them."""

_ASIDE = ("source", "raw")
"""Members that are not exported to rows."""


class Spool(Protocol):
    """A store for bytes that are read back once."""

    def put(self, data: bytes) -> int:
        """Store bytes and return their number."""

    def get(self, number: int) -> bytes:
        """Return the bytes with that number."""


@dataclass(frozen=True)
class Grouping:
    """Options for grouping episodes."""

    run: str | None = None
    join_runs: bool = False
    group_by: str | None = None
    """`task`, or the path of a field."""
    required: tuple[str, ...] | None = None
    """The required verdicts, instead of those in the file."""
    subagents: str = "keep"
    close: bool = True


KNOWN_TEXTS = 4096
"""Maximum number of shared texts (prompts, tools) whose position in the spool is cached."""


class _Text(NamedTuple):
    """A text in the spool."""

    digest: str
    number: int


class _Head(NamedTuple):
    """An episode's own data and its rollout's. Its events are the next entry of the spool."""

    name: str
    key: Any
    trial: Any
    place: Place | None
    system: _Text | None
    tools: _Text | None
    task: _Text | None
    shown: bool
    branches: int | None
    labels: dict[str, str]
    info: dict[str, Any]
    end: dict[str, Any] | None
    verdicts: list[dict[str, Any]]


class RolloutBook:
    """The rollouts of an import."""

    def __init__(self, format_name: str, grouping: Grouping, spool: Spool) -> None:
        self._format = format_name
        self._grouping = grouping
        self._spool = spool
        self._index = BranchIndex()
        self._texts: dict[bytes, _Text] = {}

    def add(self, episode: Episode) -> Bad | None:
        """Add an episode. Returns a rejection for an empty one."""
        known = episode.error or episode.may_be_empty
        if not known and all(event["event"] == "run_start" for event in episode.events):
            return Bad(episode.file, episode.position, "", "an empty episode: no model turn, no call, no message", None)
        first = first_message(episode.events)
        key, name, is_grouped = self._identity(episode, first)
        kept = self._grouping.subagents == "keep"
        events = with_subagents(episode.events, episode.subagents) if kept else list(episode.events)
        events.insert(0, source_event(self._format, episode))
        told = self._head(episode, name, key, first, is_grouped=is_grouped)
        plain = [list(each) if isinstance(each, tuple) else each for each in told]
        head = self._spool.put(_written(plain))
        self._spool.put(b"\n".join([line for event in events for line in _fitted(event)]))
        self._index.add(name, head, episode.order)
        if not kept:
            for number, sub in enumerate(episode.subagents):
                self.add(_apart(episode, sub, number, name))
        return None

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of all rollouts, grouped by rollout.

        The order is that of first appearance or of start times.
        """
        for numbers in self._index.groups():
            yield from self._lines(numbers)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of rollouts and of branches."""
        return self._index.counts

    # -- gathering -----------------------------------------------------------------------------------------------------

    def _identity(self, episode: Episode, first: str | None) -> tuple[Any, str, bool]:
        """Return the key and the id of an episode's rollout, and whether --group-by determined it."""
        grouping = self._grouping
        if grouping.group_by is not None:
            key = first if grouping.group_by == FIRST_MESSAGE else look(episode.record, grouping.group_by)
            if key is not None:
                return key, rollout_id(self._format, grouping.run, key), True
        if episode.rollout_id is not None:
            return episode.task_key, episode.rollout_id, False
        run = None if grouping.join_runs else grouping.run or episode.run
        return episode.task_key, rollout_id(self._format, run, episode.task_key), False

    def _head(self, episode: Episode, name: str, key: Any, first: str | None, *, is_grouped: bool) -> _Head:
        trial = None if self._grouping.group_by else episode.trial
        named = episode.branch_index is not None and not is_grouped
        return _Head(
            name,
            key,
            trial if trial is None or isinstance(trial, int | str) else as_text(trial),
            Place(episode.branch_index or 0, episode.attempt or 0) if named else None,
            self._text(episode.system),
            self._text(None if not episode.tools else compact(list(episode.tools))),
            self._text(episode.task if episode.task is not None else first),
            episode.task_shown,
            episode.branches,
            dict(episode.labels),
            {name: value for name, value in episode.info.items() if is_fitting(name, value)},
            None if episode.status is None else {"status": episode.status, "error": episode.error},
            list(episode.verdicts),
        )

    def _text(self, text: str | None) -> _Text | None:
        """Store a text in the spool. A text that is still in the cache is not written again."""
        if text is None:
            return None
        raw = text.encode()
        digest = sha256(raw).digest()[:16]
        known = self._texts.get(digest)
        if known is None:
            if len(self._texts) >= KNOWN_TEXTS:
                del self._texts[next(iter(self._texts))]
            known = self._texts[digest] = _Text(digest.hex(), self._spool.put(raw))
        return known

    def _said(self, text: _Text) -> str:
        return self._spool.get(text.number).decode()

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _lines(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yield the lines of one rollout.

        `numbers` are its branches' heads. Each is read twice, because there may be too many for memory.
        """
        shared = _Shared()
        for number in numbers:
            shared.take(self._read_head(number))
        yield self._opening(shared)
        placed = shared.places()
        for place, number in zip(placed, numbers, strict=True):
            head = self._read_head(number)
            config: dict[str, Any] = {}
            if shared.system.same is None and head.system is not None:
                config["systemPrompt"] = self._said(head.system)
            if shared.tools.same is None and head.tools is not None:
                config["tools"] = orjson.loads(self._spool.get(head.tools.number))
            yield from _branch_lines(shared.name, place, head, self._spool.get(number + 1), config)
        complete = shared.branches is not None and len({place.branch_index for place in placed}) >= shared.branches
        if self._grouping.close and not complete:
            yield _line({"type": "close", "rollout_id": shared.name})

    def _read_head(self, number: int) -> _Head:
        name, key, trial, place, *texts, shown, branches, labels, info, end, verdicts = parse(self._spool.get(number))
        system, tools, task = (None if each is None else _Text(*each) for each in texts)
        at = None if place is None else Place(*place)
        return _Head(name, key, trial, at, system, tools, task, shown, branches, labels, info, end, verdicts)

    def _opening(self, shared: "_Shared") -> bytes:
        line: dict[str, Any] = {"type": "rollout", "rollout_id": shared.name}
        task = shared.task.same
        if task is not None:
            line["task"] = self._said(task)
        else:  # every branch has its own text, or the text is unknown
            line["task"] = as_text(shared.key) if shared.task.count else ""
        if task is None or not shared.shown:
            line["task_shown"] = False
        if shared.branches is not None:
            line["branches"] = shared.branches
        required = self._grouping.required
        line["required"] = list(shared.verdicts if required is None else required)
        if shared.system.same is not None:
            line["system_prompt"] = self._said(shared.system.same)
        if shared.tools.same is not None:
            line["tools"] = orjson.loads(self._spool.get(shared.tools.same.number))
        labels = {"format": self._format, **shared.labels}
        line["labels"] = {key: labels[key] for key in sorted(labels)}
        return _line(line)


class _SameText:
    """The text that all branches seen so far have in common."""

    def __init__(self) -> None:
        self.same: _Text | None = None
        self.count = 0

    def take(self, text: _Text | None) -> None:
        """Read the text of a branch."""
        if text is None or (self.count and (self.same is None or self.same.digest != text.digest)):
            self.same = None
        else:
            self.same = text
        self.count += 1


class _Shared:
    """The data about a rollout from all its heads."""

    def __init__(self) -> None:
        self.name = ""
        self.key: Any = None
        self.system = _SameText()
        self.tools = _SameText()
        self.task = _SameText()
        self.shown = True
        self.branches: int | None = None
        self.labels: dict[str, str] = {}
        self.verdicts: dict[str, None] = {}
        self._named: list[Place] = []
        self._trials: list[Any] = []

    def take(self, head: _Head) -> None:
        """Add a branch."""
        if not self._trials:
            self.name, self.key = head.name, head.key
        self.system.take(head.system)
        self.tools.take(head.tools)
        if head.task is not None:
            self.task.take(head.task)
            self.shown &= head.shown
        if head.branches is not None:
            self.branches = head.branches if self.branches is None else max(self.branches, head.branches)
        self.labels |= head.labels
        self.verdicts |= dict.fromkeys(str(each.get("name") or each["type"]) for each in head.verdicts)
        self._trials.append(head.trial)
        if head.place is not None:
            self._named.append(head.place)

    def places(self) -> list[Place]:
        """Return the places of the branches, from the trace or else from their trials."""
        return self._named if len(self._named) == len(self._trials) else places(self._trials)


def with_subagents(events: Sequence[dict[str, Any]], subagents: Sequence[SubAgent]) -> list[dict[str, Any]]:
    """Return the events with those of sub-agents inserted."""
    made = list(events)
    last_first = sorted(enumerate(subagents), key=lambda each: (each[1].at, each[0]), reverse=True)
    for number, sub in last_first:
        mark = {"channel": SUBAGENT_CHANNEL, "trace_id": f"{sub.name}-{number}", "parent_trace_id": ""}
        told = [event | mark | {"event": SUBAGENT_PREFIX + event["event"]} for event in sub.events]
        made[sub.at : sub.at] = told
    return made


def _apart(episode: Episode, sub: SubAgent, number: int, parent: str) -> Episode:
    """Return a sub-agent as a separate rollout, labelled with its parent."""
    return Episode(
        file=episode.file, position=episode.position, run=episode.run,
        task_key=[episode.task_key, episode.trial, "subagent", number, sub.name],
        events=sub.events, labels={"parent": parent, "subagent": sub.name}, status=episode.status,
    )  # fmt: skip


def source_event(format_name: str, episode: Episode) -> dict[str, Any]:
    """Return the first event of a branch: its origin and every field without another place."""
    data: dict[str, Any] = {"format": format_name}
    if episode.version is not None:
        data["version"] = episode.version
    data |= {"file": episode.file, "position": episode.position}
    unfit = {name: value for name, value in episode.info.items() if not is_fitting(name, value)}
    source = dict(episode.source) | ({"info": unfit} if unfit else {})
    if source:
        data["source"] = fitting_source(source, MAX_NOTE)
    return {"channel": "status", "event": "import_source", "data": data}


def is_fitting(name: str, value: Any) -> bool:
    """Return whether the log accepts a trace's value for its branch. Rejected values stay in `import_source`."""
    if name not in ("seed", "temperature") or value is None:
        return True
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) < 2**63
    return name == "temperature" and isinstance(value, float) and abs(value) < 2.0**63


def first_message(events: Sequence[dict[str, Any]]) -> str | None:
    """Return the task as the model saw it, or None."""
    for event in events:
        if event["event"] == "run_start":
            task = event["data"].get("task")
            return task if isinstance(task, str) and task else None
        if event["event"] == "message" and event["data"].get("role") == "user":
            content = event["data"].get("content")
            return content if isinstance(content, str) and content else None
    return None


def _fitted(event: Mapping[str, Any]) -> list[bytes]:
    text = _written(event)
    return [text] if len(text) <= MAX_EVENT else [_written(each) for each in fitted_event(event)]


def fitted_event(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return an event.

    Over the limit, references replace its longest members, with a note event if a row would miss them.
    """
    if len(_written(event)) <= MAX_EVENT:
        return [event]
    data = dict(event["data"])
    made: Mapping[str, Any] = event
    for name in sorted(data, key=lambda each: (each not in _ASIDE, -len(compact(data[each])))):
        data[name] = referred(data[name])
        made = {**event, "data": dict(data)}
        if len(_written(made)) <= MAX_EVENT:
            if name in _ASIDE:
                return [made]
            break
    left_out = {"channel": "status", "event": "content_left_out", "data": {"reason": "too_large", "count": 1}}
    return [made, left_out]


def _branch_lines(name: str, place: Place, head: _Head, body: bytes, config: dict[str, Any]) -> Iterator[bytes]:
    where = {"rollout_id": name, "branch_index": place.branch_index, "attempt": place.attempt}
    beginning = b'{"type":"event",' + orjson.dumps(where)[1:-1] + b',"seq":'
    info = {key: value for key, value in head.info.items() if value is not None}
    info_text = orjson.dumps(info)[1:-1] + b"," if info else b""
    for seq, event in enumerate(body.split(b"\n")):
        told = event
        if config and b'"event":"run_start"' in event[:200]:
            told, config = _written(configured(parse_object(event), config)), {}
        yield b'%b%d,%b"event":%b}\n' % (beginning, seq, info_text, told)
        info_text = b""
    if head.end is not None:
        yield _line({"type": "end", **where, **{key: value for key, value in head.end.items() if value is not None}})
    for verdict in head.verdicts:
        yield _line({"type": verdict["type"], **where, **verdict})


def configured(event: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run_start with its own system prompt and tools."""
    data = event["data"]
    return {**event, "data": {**data, "agentConfig": {**data.get("agentConfig", {}), **config}}}


def _line(value: Any) -> bytes:
    return _written(value) + b"\n"


def _written(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits
        return compact(value).encode()
