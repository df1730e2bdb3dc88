"""The facts of whole rollouts, for formats that export whole branches: events and verdicts pinned by the settling, and
the opening.

A repeated event counts once, and of two with one seq the first; an event after the settling does not count. The digest
of all events of a branch must match its settling, else the rollout is incomplete.
"""

from collections.abc import Mapping, Sequence

from agents.formats.shape import Facts, ToldBranch
from agents.rollouts.pinned_config import pinned_config
from agents.summarize.branch import raw_digest
from agents.summarize.event_reader import keep_slice
from agents.trust.verdict_signature import content_digest
from agents.verdicts.meaning import Verdict, kind_of
from schemas.closures import RolloutSettled, SettledBranch
from schemas.events import AgentEvents, EventFields, plain_events
from schemas.lifecycle import RolloutOpened
from streams.log.topics import AGENT_EVENTS, BUILD_VERDICTS, CHECK_VERDICTS, VISUAL_VERDICTS, Topic

VERDICTS: tuple[Topic, ...] = (BUILD_VERDICTS, VISUAL_VERDICTS, CHECK_VERDICTS)
FACT_TOPICS: tuple[Topic, ...] = (AGENT_EVENTS, *VERDICTS)
"""Beside the openings."""


_TOPIC_OF = {"build": BUILD_VERDICTS, "visual": VISUAL_VERDICTS}


class Gathering:
    """The facts of one rollout, collected until all that its settling pinned are there."""

    def __init__(self, settled: RolloutSettled) -> None:
        self._settled = settled
        self._pins = {(pin.branch_index, pin.attempt): pin for pin in settled.branches}
        self._events: dict[tuple[int, int], dict[int, EventFields]] = {place: {} for place in self._pins}
        self._verdicts: dict[int, list[Verdict]] = {}

    def take_events(self, piece: AgentEvents) -> None:
        """Take a slice: the first event of each seq that is pinned."""
        place = (piece.branch_index, piece.attempt)
        pin = self._pins.get(place)
        if pin is None or pin.last_seq is None:
            return
        missing, known = frozenset(pin.gaps), self._events[place]
        for seq, event in enumerate(plain_events(piece), start=piece.first_seq):
            if seq <= pin.last_seq and seq not in missing:
                known.setdefault(seq, event)

    def take_verdict(self, verdict: Verdict) -> None:
        """Take a verdict."""
        self._verdicts.setdefault(verdict.branch_index, []).append(verdict)

    @property
    def lacks_events(self) -> bool:
        """Whether events are missing."""
        return any(len(self._events[place]) < pin.n_events for place, pin in self._pins.items())

    @property
    def lacks_all_events(self) -> bool:
        """Whether none of the pinned events is there: a log of sinks alone has none."""
        return self.lacks_events and not any(self._events.values())

    def lacks_verdicts(self, topic: Topic | None = None) -> bool:
        """Whether any verdicts are missing, or any of one topic."""
        lacking = [pin for pin in self._settled.branches if len(self._of(pin)) < len(pin.verdict_ids)]
        kinds = {kind for pin in lacking for kind in pin.verdict_kinds or ("build", "visual", "")}
        return bool(kinds) if topic is None else any(_TOPIC_OF.get(kind, CHECK_VERDICTS) is topic for kind in kinds)

    def _of(self, pin: SettledBranch) -> list[Verdict]:
        """The verdicts that count of a branch, in the order of the settling."""
        found: list[Verdict] = []
        for place, name in enumerate(pin.verdict_ids):
            kind = pin.verdict_kinds[place] if pin.verdict_kinds else None
            digest = pin.verdict_digests[place] if pin.verdict_digests else None
            for each in self._verdicts.get(pin.branch_index, ()):
                is_named = each.verdict_id == name and kind in (None, kind_of(each))
                if is_named and (not digest or digest == content_digest(each)):
                    found.append(each)
                    break
        return found

    def branches(self) -> Mapping[int, ToldBranch] | None:
        """The facts of each branch; None if something is missing, or differs from what was settled."""
        if self.lacks_events or self.lacks_verdicts():
            return None
        told: dict[int, ToldBranch] = {}
        for place, pin in self._pins.items():
            events = tuple(sorted(self._events[place].items()))
            if pin.n_events and _digest(events) != pin.raw_digest:
                return None
            told[pin.branch_index] = ToldBranch(events, tuple(self._of(pin)))
        return told


def _digest(events: Sequence[tuple[int, EventFields]]) -> str:
    """The digest of events, as a settling states it."""
    return raw_digest([keep_slice([event for _, event in events], 0, 0, redacting=False)])


def facts_of(
    settled: RolloutSettled, branches: Mapping[int, ToldBranch], opened: RolloutOpened | None, *, redact: bool
) -> Facts:
    """The facts of a rollout. A branch that was settled to be redacted is redacted, whatever the export asks for."""
    config = pinned_config(settled)
    return Facts(branches, opened if settled.opened else None, redact or config.redact, config.reasoning == "keep")
