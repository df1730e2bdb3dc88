"""The sequences of a branch: conversations that its model calls continue, each from its first message to its last response.

A call joins the sequence whose last call it continues: its context begins with the context and response of that call,
with equal content, the same agent and the same tools. Otherwise it begins one. So a compaction, a sub-agent, a side
call, or a second continuation of the same history begins another, and every response is in exactly one sequence.

Contexts are paths in a tree of messages: equal beginnings share nodes, so a turn costs only its new messages.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from agents.conversations.chat import Asked, Told


class NotRepresentableError(Exception):
    """A branch that cannot be made into rows: the reason, as a short code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class SequenceCall(NamedTuple):
    """A call of a sequence."""

    call: Asked
    response: int
    """The position of its response among the messages of the sequence."""


class Sequence(NamedTuple):
    """One conversation of a branch."""

    messages: tuple[Told, ...]
    """Context and response of its last call."""
    trained: frozenset[int]
    """The positions of the responses of its calls."""
    agent: str | None
    tools: str | None
    """The tools offered, as JSON text; None if no call records them."""
    model: str | None
    """The requested model; None if there were several."""
    calls: tuple[SequenceCall, ...] = ()
    """Its calls, in order."""
    removed_from: int | None = None
    """The position of the first message from which redaction removed anything; 0 if it did so from the tools."""


class Sequences(NamedTuple):
    """All conversations of a branch, in the order of their first calls."""

    all: tuple[Sequence, ...]
    main: int
    """The index of the main sequence: the one with the branch's last response, among those with tools if any has tools,
    because agents also ask for titles and summaries, and such an answer may come last.
    """


ROOT: Final = 0

TOO_MANY: Final = "too_many_messages"

MAX_MESSAGES: Final = 100_000
"""Messages of all sequences of a branch together. A call of a hundred bytes can repeat a context of thousands of messages, and
each sequence becomes rows of its own: without a bound, a small slice could exhaust the memory of a worker."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of the sequences of a branch."""

MAX_STEPS: Final = 5_000_000
"""Messages that are passed on the way from one context to another."""


class _Tree:
    """Messages by the messages before them."""

    def __init__(self) -> None:
        self.parents = [ROOT]
        self.depths = [0]
        self.sizes = [0]
        """Bytes of the messages up to a node."""
        self._steps = 0
        self.messages: list[Told | None] = [None]
        self.removed: set[int] = set()
        """Nodes with a message that redaction changed: other messages of the same node may be unchanged."""
        self._children: dict[tuple[int, bytes], int] = {}

    def child(self, node: int, told: Told) -> int:
        """Return the node of a message after another node."""
        found = self._children.get((node, told.key))
        if found is None:
            found = self._children[node, told.key] = len(self.parents)
            self.parents.append(node)
            self.depths.append(self.depths[node] + 1)
            self.sizes.append(self.sizes[node] + told.size)
            self.messages.append(told)
        if told.removed:
            self.removed.add(found)
        return found

    def ancestor(self, node: int, depth: int) -> int:
        """Return the node of the message so deep on the way to `node`."""
        self.walk(max(0, self.depths[node] - depth))
        while self.depths[node] > depth:
            node = self.parents[node]
        return node

    def walk(self, steps: int) -> None:
        """Count steps. Raises NotRepresentableError if there are too many."""
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise NotRepresentableError(TOO_MANY)

    def path(self, node: int) -> tuple[Told, ...]:
        """Return the messages up to a node."""
        found: list[Told] = []
        while node != ROOT:
            told = self.messages[node]
            assert told is not None
            found.append(told)
            node = self.parents[node]
        return tuple(reversed(found))

    def removed_from(self, node: int) -> int | None:
        """Return the position of the first message up to a node from which anything was removed."""
        first = None
        while self.removed and node != ROOT:
            first = self.depths[node] - 1 if node in self.removed else first
            node = self.parents[node]
        return first


class _Open:
    """A sequence while calls may still continue it."""

    def __init__(self, first: Asked) -> None:
        self.agent = first.agent
        self.tools: str | None = None
        self.tools_digest: str | None = None
        self.models: list[str | None] = []
        self.last = ROOT
        """The node of its last response."""
        self.responses: list[int] = []
        self.calls: list[Asked] = []

    def add(self, call: Asked, node: int) -> None:
        self.last = node
        self.responses.append(node)
        self.calls.append(call)
        self.tools = self.tools if call.tools is None else call.tools
        self.tools_digest = call.tools_digest or self.tools_digest
        self.models.append(call.model)

    def takes(self, call: Asked) -> bool:
        """Whether a call has the same agent and the same tools, as far as these are known."""
        alike = None in (call.tools_digest, self.tools_digest) or call.tools_digest == self.tools_digest
        return alike and call.agent == self.agent


def sequences_of(
    messages: Iterable[Told], calls: Iterable[Asked], by_digest: Mapping[str, str], removed: Collection[str] = ()
) -> Sequences:
    """Return the sequences of an attempt's calls, in the order of its log.

    `by_digest` has tool lists by digest, for calls that name only that; `removed` has the digests of those from
    which redaction removed something. Raises NotRepresentableError for a missing reference, an id used for two messages
    or calls, unknown tools, an attempt without any response, and sequences that are too many or too long for rows.
    """
    known = _by_id(messages)
    unclean = {*removed}
    tree = _Tree()
    ends: dict[str, int] = {}
    tools = dict(by_digest)
    sequences: list[_Open] = []
    by_last: dict[int, list[int]] = {}
    last, last_at_work = -1, -1
    for call in calls:
        node = _context(call, ends, known, tree)
        if call.call_id in ends:
            raise NotRepresentableError("repeated_call_id")
        if call.tools is not None and call.tools_digest is not None:
            tools.setdefault(call.tools_digest, call.tools)
            if call.removed:
                unclean.add(call.tools_digest)
        ends[call.call_id] = node
        if call.response is None:
            continue
        response = known.get(call.response)
        if response is None or response.role != "assistant":
            raise NotRepresentableError("unknown_response")
        place = _continued(call, node, tree, by_last, sequences)
        if place is None:
            place = len(sequences)
            sequences.append(_Open(call))
        else:
            by_last[sequences[place].last].remove(place)
        ends[call.call_id] = node = tree.child(node, response)
        sequences[place].add(call, node)
        by_last.setdefault(node, []).append(place)
        last = place
        last_at_work = place if call.offers_tools else last_at_work
    if last < 0:
        raise NotRepresentableError("no_response")
    ends_of = [each.last for each in sequences]
    if (
        sum([tree.depths[node] for node in ends_of]) > MAX_MESSAGES
        or sum([tree.sizes[node] for node in ends_of]) > MAX_BYTES
    ):
        raise NotRepresentableError(TOO_MANY)
    main = last_at_work if last_at_work >= 0 else last
    return Sequences(tuple([_closed(each, tree, tools, unclean) for each in sequences]), main)


def _by_id(messages: Iterable[Told]) -> dict[str, Told]:
    known: dict[str, Told] = {}
    for told in messages:
        if known.setdefault(told.message_id, told).key != told.key:
            raise NotRepresentableError("repeated_message_id")
        if told.removed:  # equal messages, one of which was different before redaction
            known[told.message_id] = told
    return known


def _context(call: Asked, ends: Mapping[str, int], known: Mapping[str, Told], tree: _Tree) -> int:
    """The node of the last message that a call was made with."""
    node = ROOT
    if call.after is not None:
        end = ends.get(call.after)
        if end is None or tree.depths[end] < call.keep:
            raise NotRepresentableError("unknown_context")
        node = tree.ancestor(end, call.keep)
    elif call.keep:
        raise NotRepresentableError("unknown_context")
    for message_id in call.add:
        told = known.get(message_id)
        if told is None:
            raise NotRepresentableError("unknown_message")
        node = tree.child(node, told)
    return node


def _continued(
    call: Asked, node: int, tree: _Tree, by_last: Mapping[int, list[int]], sequences: list[_Open]
) -> int | None:
    """The sequence that a call continues: the longest, then the earliest; None if it begins a new one."""
    while node != ROOT:
        found = [place for place in by_last.get(node, ()) if sequences[place].takes(call)]
        if found:
            return min(found)
        tree.walk(1)
        node = tree.parents[node]
    return None


def _closed(sequence: _Open, tree: _Tree, tools: Mapping[str, str], unclean: Collection[str]) -> Sequence:
    offered = sequence.tools
    if offered is None and sequence.tools_digest is not None:
        offered = tools.get(sequence.tools_digest)
        if offered is None:
            raise NotRepresentableError("unknown_tools")
    told_unclean = any(call.removed or call.tools_digest in unclean for call in sequence.calls)
    return Sequence(
        tree.path(sequence.last),
        frozenset([tree.depths[node] - 1 for node in sequence.responses]),
        sequence.agent,
        offered,
        sequence.models[0] if len({*sequence.models}) == 1 else None,
        tuple(map(SequenceCall, sequence.calls, [tree.depths[node] - 1 for node in sequence.responses])),
        0 if told_unclean else tree.removed_from(sequence.last),
    )
