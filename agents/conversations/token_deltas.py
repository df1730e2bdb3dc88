"""Prompts written as differences: the ids that an earlier call of the same attempt already has on the log are not written again.

A producer keeps one `TokenDeltas` for events that it writes in their order. If the earlier call is no longer
remembered, a call keeps its whole prompt: a difference only saves bytes.
"""

from collections import OrderedDict
from typing import Final

from agents.conversations.tokens import TOO_LARGE, WIDTH
from schemas.events import AgentEvent, PackedTokens
from schemas.jsontext import compact, parse_object

MAX_REMEMBERED: Final = 64 * 1024 * 1024
"""Bytes of ids that are remembered of calls."""

MAX_EVENT: Final = 1024 * 1024 - 8 * 1024
"""Bytes of an event with its tokens: the limit of a slice, without the rest of a slice."""

Place = tuple[str, int, int]
"""Rollout, branch and attempt."""


class TokenDeltas:
    """The ids of the last calls of branches."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[Place, str], bytes] = OrderedDict()
        self._size = 0

    def shrunk(self, place: Place, event: AgentEvent) -> AgentEvent:
        """Return an event with its prompt as a difference; without its tokens if they do not fit into a slice."""
        tokens = event.tokens
        if tokens is None or tokens.prompt_keep:
            return event
        data = parse_object(event.data)
        former = self._ids.get((place, str((data.get("context") or {}).get("after"))))
        kept = 0 if former is None else shared(former, tokens.prompt_ids)
        least = tokens.model_copy(update={"prompt_keep": kept, "prompt_ids": tokens.prompt_ids[kept * WIDTH :]})
        if len(event.data.encode()) + size_of(least) > MAX_EVENT:
            return event.model_copy(
                update={"tokens": None, "data": compact({**data, "tokens": {**data["tokens"], "left_out": TOO_LARGE}})}
            )
        self._remember(place, str(data.get("call_id")), tokens.prompt_ids + tokens.ids)
        return event.model_copy(update={"tokens": least}) if kept else event

    def _remember(self, place: Place, call_id: str, ids: bytes) -> None:
        self._size += len(ids) - len(self._ids.pop((place, call_id), b""))
        self._ids[place, call_id] = ids
        while self._size > MAX_REMEMBERED:
            self._size -= len(self._ids.popitem(last=False)[1])


def size_of(tokens: PackedTokens | None) -> int:
    """Bytes of a call's tokens in a slice, rather more than less."""
    if tokens is None:
        return 0
    return len(tokens.prompt_ids) + len(tokens.ids) + len(tokens.logprobs or b"") + 64


def shared(one: bytes, other: bytes) -> int:
    """How many ids two lists begin with alike."""
    if other.startswith(one):  # nearly always: a prompt continues the one before
        return len(one) // WIDTH
    low, high = 0, min(len(one), len(other)) // WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        alike = one[low * WIDTH : middle * WIDTH] == other[low * WIDTH : middle * WIDTH]
        low, high = (middle, high) if alike else (low, middle - 1)
    return low
