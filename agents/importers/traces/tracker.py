"""Find the conversation in calls that repeat their history: each message is written once, each call as a difference.

Each model request contains the whole history. The tracker keeps the histories of a branch as paths in a tree of message
keys. A call's messages extend the longest path that they share, only the rest is new, and the call describes its
context as {after, keep, add}. After a gap (a compaction, a sliding window) a history reuses the messages that stayed,
and `context_rewritten` is written. The tracker does not depend on file formats: span importers and the capturing proxy
both use it.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from agents.importers.traces.call_facts import CallFacts, Offers, call_fields
from agents.importers.traces.spoken import Spoken, key_of, message_data, short

Event = dict[str, Any]

GIVEN = ("system", "developer")
"""Roles of an agent's initial prompt."""


class TracedCall(NamedTuple):
    """One request to a model, from a trace."""

    messages: Sequence[Spoken] = ()
    """The messages of the request."""
    response: Spoken | None = None
    id: str | None = None
    """The producer's id of the call."""
    agent: str | None = None
    """The agent that made the call. None for the branch's own agent, or if the trace does not name one."""
    facts: CallFacts = CallFacts()
    call_ids: Sequence[str] = ()
    """Ids for those calls of the response that have none."""


class Outcome(NamedTuple):
    """The end of a tool call from a source other than a request: a span of the tool."""

    spoken: Spoken
    """The message of its result, in case no request ever contains it."""
    output: str | None = None
    """The tool's result, if known. A request may contain it in another form."""
    time: int | None = None
    agent: str | None = None


class _Node:
    """A message at its position after other messages."""

    __slots__ = ("answers", "asked", "call_id", "children", "is_end", "key", "message_id")

    def __init__(self, key: bytes, message_id: str, call_id: str) -> None:
        self.key = key
        self.message_id = message_id
        self.call_id = call_id
        """A call whose context and response include this node."""
        self.is_end = False
        """Whether a call's context and response end here."""
        self.asked: tuple[tuple[str, str], ...] = ()
        """Ids and names of its tool calls."""
        self.answers: str | None = None
        """The id of the tool call that it answers."""
        self.children: dict[bytes, _Node] = {}


class _Open:
    """Tool calls of a context that have no answer yet."""

    def __init__(self, path: Iterable[_Node]) -> None:
        self._waiting: list[tuple[str, str]] = []
        for node in path:
            self.take(node)

    def take(self, node: _Node) -> None:
        """Process the next message."""
        self._waiting += node.asked
        for place, (call_id, _name) in enumerate(self._waiting):
            if call_id == node.answers:
                del self._waiting[place]
                break

    def paired(self, spoken: Spoken) -> tuple[str | None, str | None]:
        """Return id and name of the call that a tool message answers.

        If the message has no id, it is the first waiting call.
        """
        given, name = None if not spoken.call_id else short(spoken.call_id), spoken.name
        for waiting, tool in self._waiting:
            if waiting == given or (given is None and name in (None, tool)):
                return waiting, name or tool
        return given, name


class _Shared(NamedTuple):
    """The part of a call that it shares with earlier ones."""

    path: list[_Node]
    """The longest earlier history that is a prefix of its messages."""
    base: Sequence[_Node]
    """The history from which more messages may have been kept."""
    is_own: bool
    """Whether `base` is the last history of the same agent."""
    again: Mapping[int, _Node]
    """Messages of the base that stayed after a gap, by position in the call's messages."""

    def rewritten(self) -> dict[str, int] | None:
        """Return how much of its own history an agent kept, if messages after a gap stayed."""
        begun = _alike(self.base, self.path)
        stayed = begun + len(self.again)
        if not self.again or not self.is_own or stayed == len(self.base):
            return None
        return {"kept": stayed, "dropped": len(self.base) - stayed}


class ConversationTracker:
    """The conversation of one branch, built call by call in their order."""

    def __init__(self, *, reasoning: bool = False) -> None:
        """With `reasoning`, a history without its reasoning is a different one.

        Use it if requests are known as they were sent.
        """
        self._reasoning = reasoning
        self._root = _Node(b"", "", "")
        self._n_messages = 0
        self._n_made = 0
        self._call_ids: dict[str, int] = {}
        self._offers = Offers()
        self._last: dict[str | None, list[_Node]] = {}
        """The context and response of each agent's last call, by agent."""
        self._latest: list[_Node] = []
        """The context and response of the last call of any agent."""
        self._outcomes: dict[str, list[Outcome]] = {}
        self._failed: set[str] = set()
        """Ids of tool calls that failed."""
        self._keys: dict[int, tuple[Spoken, bytes]] = {}
        """Keys of the last call's messages, by object identity."""
        self._prompts: dict[str, str | None] = {}
        """The agent that a system prompt identifies, by system prompt."""
        self._seen: dict[bytes, str | None] = {}
        """The agent that first had a message, by message key."""

    def outcome(self, call_id: str, outcome: Outcome) -> None:
        """Store the end of a tool call. The message of its result will contain it."""
        self._outcomes.setdefault(short(call_id), []).append(outcome)

    def take(self, call: TracedCall) -> list[Event]:
        """Return the events of a call: its new messages, and the call itself."""
        call_id = self._unique(short(call.id) if call.id else f"c{len(self._call_ids)}")
        keys = self._keys_of(call.messages)
        agent = call.agent if call.agent is not None else self._agent(call.messages, keys)
        shared = self._shared(agent, keys)
        path, waiting = list(shared.path), _Open(shared.path)
        after = path[-1].call_id if path else None
        events: list[Event] = []
        rewritten = shared.rewritten()
        if rewritten is not None:
            events.append(_event("context_rewritten", "status", rewritten, call.facts.started_ms))
        for number in range(len(path), len(keys)):
            again = shared.again.get(number)
            node = self._placed(path, keys[number], call_id, again)
            if again is None:
                events.append(self._told(node, call.messages[number], waiting, agent, call.facts.started_ms))
            waiting.take(node)
            path.append(node)
        add = [node.message_id for node in path[len(shared.path) :]]
        data: dict[str, Any] = {
            "call_id": call_id, "agent": agent, "context": {"after": after, "keep": len(shared.path), "add": add},
        }  # fmt: skip
        if call.response is not None:
            told = self._respond(path, call, call_id, agent)
            events.append(told)
            data["response"] = told["data"]["id"]
        if path:
            path[-1].is_end = True
            self._last[agent] = self._latest = path
        for key in keys:
            self._seen.setdefault(key, agent)
        data |= call_fields(call.facts, self._offers, answered=call.response is not None)
        known = {name: value for name, value in data.items() if value is not None}
        events.append(_event("model_call", "conversation", known, call.facts.ended_ms or call.facts.started_ms))
        return events

    def leftovers(self) -> list[Event]:
        """Return result messages that were not in any request, because the run ended before."""
        events = []
        for call_id, outcomes in self._outcomes.items():
            for each in outcomes:
                data = message_data(each.spoken, self._message_id(), (), call_id, each.agent)
                events.append(_event("message", "conversation", data, each.time))
        self._outcomes = {}
        return events

    def _keys_of(self, messages: Sequence[Spoken]) -> list[bytes]:
        """Return the keys of messages. Objects that were in the last call have cached keys."""
        known, self._keys = self._keys, {}
        for each in messages:
            told = known.get(id(each))
            self._keys[id(each)] = (each, key_of(each, reasoning=self._reasoning)) if told is None else told
        return [self._keys[id(each)][1] for each in messages]

    # -- histories -----------------------------------------------------------------------------------------------------

    def _shared(self, agent: str | None, keys: Sequence[bytes]) -> _Shared:
        path: list[_Node] = []
        node = self._root
        for key in keys:
            child = node.children.get(key)
            if child is None:
                break
            path.append(child)
            node = child
        own = self._last.get(agent)
        if len(path) == len(keys):
            return _Shared(path, (), False, {})
        goes_on = bool(path) and path[-1].is_end
        if own and not goes_on:
            return _Shared(path, own, True, _stayed(own, path, keys))
        latest = self._latest
        if latest is own or (path and latest and path[-1] is latest[-1]):
            return _Shared(path, (), False, {})
        return _Shared(path, latest, False, _stayed(latest, path, keys))  # another agent's messages, after a handoff

    def _placed(self, path: Sequence[_Node], key: bytes, call_id: str, again: _Node | None) -> _Node:
        """Add a node after a path, for a new message or for a repeated one."""
        before = path[-1] if path else self._root
        node = _Node(key, self._message_id() if again is None else again.message_id, call_id)
        if again is not None:
            node.asked, node.answers = again.asked, again.answers
        before.children[key] = node
        return node

    def _respond(self, path: list[_Node], call: TracedCall, call_id: str, agent: str | None) -> Event:
        """Add the message of a response to the path and return its event. Equal responses are two messages."""
        assert call.response is not None
        key = key_of(call.response, reasoning=self._reasoning)
        before = path[-1] if path else self._root
        known = before.children.get(key)
        node = _Node(key, self._message_id(), call_id)
        told = self._told(node, call.response, _Open(()), agent, call.facts.ended_ms, call.call_ids)
        if known is None:
            known = before.children[key] = node
        path.append(known)
        self._seen.setdefault(key, agent)
        return told

    # -- messages ------------------------------------------------------------------------------------------------------

    def _told(
        self, node: _Node, spoken: Spoken, waiting: _Open, agent: str | None, time: int | None, ids: Sequence[str] = ()
    ) -> Event:
        """Return the event of a new message."""
        made = iter(ids)
        asked = [short(each.id) if each.id else next(made, None) or self._made() for each in spoken.calls]
        node.asked = tuple(zip(asked, (each.name for each in spoken.calls), strict=True))
        if spoken.role == "tool":
            answers, name = waiting.paired(spoken)
            node.answers = answers or self._made()
            spoken = spoken._replace(name=name)
            ended = self._outcomes.get(node.answers)
            if ended:
                outcome = ended.pop(0)
                time = outcome.time if outcome.time is not None else time
                spoken = _with(spoken, outcome)
            if spoken.is_error:
                self._failed.add(node.answers)
            elif not ended and node.answers in self._failed:  # repeated in another form
                spoken = spoken._replace(is_error=True)
        return _event(
            "message", "conversation", message_data(spoken, node.message_id, asked, node.answers, agent), time
        )

    def _message_id(self) -> str:
        self._n_messages += 1
        return f"m{self._n_messages - 1}"

    def _made(self) -> str:
        self._n_made += 1
        return f"made_{self._n_made - 1}"

    def _unique(self, call_id: str) -> str:
        count = self._call_ids[call_id] = self._call_ids.get(call_id, 0) + 1
        return call_id if count == 1 else self._unique(short(f"{call_id}#{count}"))

    def _agent(self, messages: Sequence[Spoken], keys: Sequence[bytes]) -> str | None:
        """Return the agent of a call that names none.

        A new system prompt, followed by no message of the branch, means another agent.
        """
        prompt = "\n".join(each.text for each in takewhile(lambda each: each.role in GIVEN, messages))
        if prompt not in self._prompts:
            spoken = [key for key, each in zip(keys, messages, strict=True) if each.role not in GIVEN]
            known = [self._seen[key] for key in spoken if key in self._seen]
            new = f"agent-{len(self._prompts) + 1}" if self._prompts else None
            self._prompts[prompt] = known[-1] if known else new
        return self._prompts[prompt]


def _with(spoken: Spoken, outcome: Outcome) -> Spoken:
    """Return a result from a request, completed with data from its tool's span."""
    source = {**(spoken.source or {}), **(outcome.spoken.source or {})}
    if outcome.output is not None and outcome.output != spoken.text:
        source["output"] = outcome.output
    return spoken._replace(is_error=spoken.is_error or outcome.spoken.is_error, source=source)


def _stayed(base: Sequence[_Node], path: Sequence[_Node], keys: Sequence[bytes]) -> dict[int, _Node]:
    """Return the messages of the base that stayed after a gap, by position in the call's messages, in their order."""
    places: dict[bytes, list[int]] = {}
    for number in range(len(base) - 1, -1, -1):
        places.setdefault(base[number].key, []).append(number)
    found: dict[int, _Node] = {}
    after = _alike(base, path) - 1
    for number in range(len(path), len(keys)):
        waiting = places.get(keys[number], [])
        while waiting and waiting[-1] <= after:
            waiting.pop()
        if waiting:
            after = waiting.pop()
            found[number] = base[after]
    return found


def _alike(one: Sequence[_Node], other: Sequence[_Node]) -> int:
    """Return the length of the common prefix of two paths."""
    return sum(1 for left, right in zip(one, other, strict=False) if left is right)


def _event(event: str, channel: str, data: dict[str, Any], time: int | None) -> Event:
    made: Event = {"channel": channel, "event": event, "data": data}
    if time is not None:
        made["timestamp_ms"] = time
    return made
