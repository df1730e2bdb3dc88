"""The lines of a Claude Code session as a tree of nodes.

A model response consists of several lines with one message.id. The result of each call is a child of the line of that
call. These lines and results form one node, because a walk up from the last line would miss all but one of the calls.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.importers.sessions.session_tree import SessionTree
from agents.importers.traces.fields import array_in, object_in, text_in
from agents.importers.traces.format import Bad, Item
from agents.importers.traces.synthetic import SYNTHETIC
from schemas.jsontext import kind_of


class Line(NamedTuple):
    """A line of a session."""

    position: str
    value: Mapping[str, Any]


@dataclass
class Node:
    """A response with its results, a single line, or an unreadable line."""

    lines: list[Line] = field(default_factory=list)
    response: tuple[str, str | None] | None = None
    """message.id and requestId of a response of the model."""
    bad: Bad | None = None
    """The reason why it is unreadable or misplaced."""


def parts_of(line: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the parts of one kind from a message's content."""
    content = array_in(object_in(line, "message"), "content")
    return [part for part in content if isinstance(part, dict) and part.get("type") == kind]


def is_response(line: Mapping[str, Any]) -> bool:
    """Return whether a line is a response of the model, not of the program in the model's name."""
    message = object_in(line, "message")
    return (
        line.get("type") == "assistant"
        and line.get("isApiErrorMessage") is not True
        and message.get("model") != SYNTHETIC
    )


def is_prompt(line: Mapping[str, Any]) -> bool:
    """Return whether a line was typed by a person: a prompt, or text typed while the agent worked."""
    if line.get("type") == "attachment":
        return object_in(line, "attachment").get("type") == "queued_command"
    if line.get("type") != "user" or any(line.get(name) is True for name in ("isMeta", "isCompactSummary")):
        return False
    content = object_in(line, "message").get("content")
    return not (isinstance(content, str) and content.startswith(("<local-command-", "<bash-stdout>", "<bash-stderr>")))


class ClaudeNodes:
    """The nodes of one conversation of a session or a sub-agent."""

    def __init__(self, file: str, report: Callable[[Bad], None]) -> None:
        self.tree: SessionTree[Node] = SessionTree()
        self._file = file
        self._report = report
        self._at: dict[str, int] = {}
        """The node of a line, by uuid."""
        self._known: dict[str, Mapping[str, Any]] = {}
        self._reaches: dict[str, str] = {}
        """The kind of the nearest line with text at or above a line, by uuid: response, result or other."""
        self._callers: dict[str, int] = {}
        """The node of a call, by call id."""
        self._near: dict[int, int] = {}
        """By node, the nearest node at or above it that is not a setting, reminder or progress line."""
        self._last: int | None = None

    @property
    def first(self) -> str | None:
        """Return the uuid of the first line that has one."""
        return next(iter(self._known), None)

    def add(self, line: Line) -> None:
        """Add the next line of the file."""
        uuid = text_in(line.value, "uuid")
        if uuid is not None and uuid in self._known:
            if self._known[uuid] == line.value:
                return  # written twice
            uuid = None
        trouble = _trouble(line.value)
        if trouble is None:
            number, reaches = self._place(line)
        else:
            bad = Bad(self._file, line.position, trouble[0], trouble[1], line.value)
            self._report(bad)
            number, reaches = self._new(line, Node(bad=bad), speaks=False), "other"
        self._last = number
        if uuid is not None:
            self._known[uuid], self._at[uuid], self._reaches[uuid] = line.value, number, reaches

    def add_bad(self, bad: Bad) -> None:
        """Add an unreadable line after the previous line."""
        number = self.tree.add(self._last, Node(bad=bad), speaks=False)
        if self._last in self._near:
            self._near[number] = self._near[self._last]
        self._last = number

    def _place(self, line: Line) -> tuple[int, str]:
        """Put a line into its node or a new one. Returns the node and the kind of line that it reaches."""
        if is_response(line.value):
            return self._respond(line), "response"
        caller = self._caller(line.value)
        if caller is not None:
            self.tree.value(caller).lines.append(line)
            return caller, "result"
        words = line.value.get("type") in ("user", "assistant")
        reaches = "other" if words else self._reaches.get(self._above(line.value) or "", "other")
        speaks = is_prompt(line.value) or line.value.get("type") == "assistant"
        return self._new(line, Node([line]), speaks=speaks), reaches

    def _respond(self, line: Line) -> int:
        identity = text_in(object_in(line.value, "message"), "id")
        response = None if identity is None else (identity, text_in(line.value, "requestId"))
        parent = self._above(line.value)
        above = self._last if parent is not None and parent not in self._at else self._at.get(parent or "")
        number = None if above is None else self._near.get(above)
        same = number is not None and response is not None and self.tree.value(number).response == response
        if number is not None and same and self._reaches.get(parent or "", "response") == "response":
            self.tree.value(number).lines.append(line)
        else:
            number = self._new(line, Node([line], response or ("", None)), speaks=True)
        for part in (*parts_of(line.value, "tool_use"), *parts_of(line.value, "server_tool_use")):
            if (call := text_in(part, "id")) is not None:
                self._callers[call] = number
        return number

    def _caller(self, line: Mapping[str, Any]) -> int | None:
        """Return the node whose calls a line answers."""
        results = parts_of(line, "tool_result") if line.get("type") == "user" else []
        if not results:
            return None
        source = self._at.get(text_in(line, "sourceToolAssistantUUID") or "")
        if source is not None and self.tree.value(source).response is not None:
            return source
        return next(
            (self._callers[call] for part in results if (call := text_in(part, "tool_use_id")) in self._callers), None
        )

    def _new(self, line: Line, node: Node, *, speaks: bool) -> int:
        name = self._above(line.value)
        parent = None if name is None else self._at.get(name)
        if name is not None and parent is None:
            parent = self._last
            if node.bad is None:
                node.bad = Bad(self._file, line.position, "parentUuid", f"{name} is not before it in the file")
                self._report(node.bad)
        number = self.tree.add(parent, node, speaks=speaks)
        if speaks:
            self._near[number] = number
        elif parent in self._near:
            self._near[number] = self._near[parent]
        return number

    @staticmethod
    def _above(line: Mapping[str, Any]) -> str | None:
        """Return the parent line. A compaction begins a new context, but its parent is the line that it follows."""
        return text_in(line, "parentUuid", "logicalParentUuid")


def _trouble(line: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the unreadable field of a line and the reason, or None for a good line."""
    if line.get("type") not in ("user", "assistant"):
        return None
    message = line.get("message")
    if not isinstance(message, dict):
        return "message", f"expected an object, found {kind_of(message)}"
    content = message.get("content")
    if not isinstance(content, str | list):
        return "message.content", f"expected a text or parts, found {kind_of(content)}"
    return None


class ClaudeSession:
    """All lines of a session: its own conversation, those of its sub-agents, and lines outside any tree."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.unreadable: list[Bad] = []
        """Lines with valid JSON that are not valid session lines."""
        self.own = ClaudeNodes(file, self.unreadable.append)
        self.agents: dict[str, ClaudeNodes] = {}
        """Sub-agents by agentId, or by the uuid of their first line."""
        self.beside: list[Mapping[str, Any]] = []
        self.common: dict[str, Any] = {}
        """Fields of the tree's first line that describe the session."""
        self.types: dict[str, str] = {}
        """The type of each agent."""
        self._roots: dict[str, str] = {}
        """The uuid of a sub-agent's first line, by the uuid of any of its lines, for sub-agents without an agentId."""

    def add(self, item: Item) -> None:
        """Add the next line."""
        value = item.value
        if isinstance(value, Bad):
            self.own.add_bad(value)
        elif not isinstance(value, dict):
            bad = Bad(item.file, item.position, "", f"expected an object, found {kind_of(value)}", value)
            self.unreadable.append(bad)
            self.own.add_bad(bad)
        elif value.get("type") in ("user", "assistant", "attachment", "system") or "uuid" in value:
            self._add_line(Line(item.position, value))
        else:
            self.beside.append(value)

    def _add_line(self, line: Line) -> None:
        if not self.common:
            self.common = {name: found for name, found in line.value.items() if name not in OF_A_LINE}
        if line.value.get("isSidechain") is not True:
            self.own.add(line)
            return
        uuid, parent = text_in(line.value, "uuid") or line.position, text_in(line.value, "parentUuid") or ""
        agent = text_in(line.value, "agentId") or self._roots.get(parent) or uuid
        self._roots[uuid] = agent
        if (kind := text_in(line.value, "attributionAgent")) is not None:
            self.types.setdefault(agent, kind)
        if agent not in self.agents:
            self.agents[agent] = ClaudeNodes(self._file, self.unreadable.append)
        self.agents[agent].add(line)


OF_A_LINE = frozenset({
    "uuid", "parentUuid", "logicalParentUuid", "type", "message", "timestamp", "attachment", "isMeta", "isSidechain", "promptId",
    "requestId", "toolUseResult", "sourceToolAssistantUUID", "agentId", "attributionAgent", "promptSource", "content", "subtype",
    "isCompactSummary", "isVisibleInTranscriptOnly", "slug",
})  # fmt: skip
"""Fields that describe only a single line."""


def gather(file: str, items: Iterable[Item]) -> ClaudeSession:
    """Build the session from a file's lines."""
    session = ClaudeSession(file)
    for item in items:
        session.add(item)
    return session
