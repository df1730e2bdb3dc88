"""Single events packed into slices: contiguous runs of one branch, of a size that the log likes."""

from collections import OrderedDict
from collections.abc import Iterator

from agents.facts.fact import Fact, rollout_of
from agents.summarize.output import byte_length
from schemas.events import AgentEvent, AgentEvents

MAX_EVENTS = 64
"""Beyond this packing gains little, and a slice is what a crash can lose of a running agent."""

MAX_TEXT = 256 * 1024
"""Bytes of events in a slice: a quarter of what a slice may have."""

MAX_WAITING = 512
"""Branches with an unfinished slice; the longest waiting one is let go first."""

Branch = tuple[str, int, int]


class Slicer:
    """Packs events of many branches, whatever their order; everything else passes through behind its rollout's events."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Branch, list[AgentEvents]] = OrderedDict()
        self._size: dict[Branch, int] = {}

    def add(self, fact: Fact) -> Iterator[Fact]:
        """Take a fact; yields what is ready to be written."""
        if not isinstance(fact, AgentEvents) or fact.ended or len(fact.events) != 1:
            yield from self.flush(rollout_of(fact))
            yield fact
            return
        branch = (fact.rollout_id, fact.branch_index, fact.attempt)
        size = _size(fact.events[0])
        waiting = self._waiting.get(branch)
        if waiting and (
            fact.first_seq != waiting[-1].first_seq + 1 or len(waiting) >= MAX_EVENTS
            or self._size[branch] + size > MAX_TEXT or (fact.branch is not None and fact.branch != waiting[0].branch)
        ):  # fmt: skip
            yield self._pack(branch)
            waiting = None
        if waiting is None:
            if fact.attempt:  # an older attempt that came first is written first: a newer one fences it
                yield from [self._pack(each) for each in self._older(branch)]
            if len(self._waiting) >= MAX_WAITING:
                yield self._pack(next(iter(self._waiting)))
            self._waiting[branch] = [fact]
            self._size[branch] = size
        else:
            waiting.append(fact)
            self._size[branch] += size

    def _older(self, branch: Branch) -> list[Branch]:
        """Earlier attempts of a branch that wait."""
        return [each for each in self._waiting if each[:2] == branch[:2] and each[2] < branch[2]]

    def flush(self, rollout_id: str | None = None) -> Iterator[Fact]:
        """Let go of what waits: of one rollout, or everything."""
        for branch in [branch for branch in self._waiting if rollout_id in (None, branch[0])]:
            yield self._pack(branch)

    def _pack(self, branch: Branch) -> AgentEvents:
        pieces = self._waiting.pop(branch)
        del self._size[branch]
        if len(pieces) == 1:
            return pieces[0]
        return pieces[0].model_copy(update={"events": tuple(piece.events[0] for piece in pieces)})


def _size(event: AgentEvent) -> int:
    """Bytes of an event in a slice, rather more than less."""
    return byte_length(event.data) + 4 * (len(event.trace_id) + len(event.event) + len(event.channel)) + 64
