"""The strands of a rollout: each branch with its turns, outcome, rank and verdicts, in the order of the ranking."""

from typing import NamedTuple

from agents.rollouts.settlement import counting_attempt
from agents.summarize.pieces import Piece
from schemas.emission import EmissionConfig
from schemas.rankings import RankedBranch
from schemas.verdicts import BuildVerdict
from streams.views.account import Account
from streams.views.branch_status import (
    BranchStanding,
    VerdictStanding,
    branch_standings,
    verdict_facts,
    verdict_standings,
)
from streams.views.web.signals import Signal, signals_of
from streams.views.web.turn_writer import transcript_of
from streams.views.web.turns import Transcript


class Strand(NamedTuple):
    """One branch."""

    standing: BranchStanding
    ranked: RankedBranch | None
    transcript: Transcript
    verdicts: tuple[VerdictStanding, ...]
    """Those that count, in the order of their kinds."""
    signals: tuple[Signal, ...]
    is_examined: bool = False
    """Whether its build verdict says if protected files or the number of tests changed."""

    @property
    def branch(self) -> int:
        """The branch."""
        return self.standing.branch_index

    @property
    def objective(self) -> str:
        """How it came out."""
        return self.ranked.objective_status if self.ranked is not None else self.standing.objective

    @property
    def flags(self) -> tuple[str, ...]:
        """Oddities of the branch."""
        return self.ranked.flags if self.ranked is not None else ()


class Parting(NamedTuple):
    """Where two strands part."""

    turn: int
    """The first turn that differs; both have the same before it."""
    why: str


def pieces_of(account: Account, index: int) -> list[Piece]:
    """The events of a branch that count, or would count now."""
    rollout = account.rollout
    attempts = rollout.branches.get(index, {})
    pin = None
    if rollout.settled is not None:
        pin = next((pin for pin in rollout.settled.branches if pin.branch_index == index), None)
    if pin is not None:
        attempt = attempts.get(pin.attempt)
        return (attempt.pinned(pin.last_seq, pin.gaps) if attempt is not None else None) or []
    _, _, view = counting_attempt(attempts, None)
    return view.pieces


def strands_of(account: Account, config: EmissionConfig) -> tuple[Strand, ...]:
    """All branches: best first, then those without a rank, as the ranking has them; by index while there is none."""
    standings = {each.branch_index: each for each in branch_standings(account.rollout, config)}
    ranked = {} if account.ranking is None else {each.branch_index: each for each in account.ranking.branches}
    verdicts: dict[int, list[VerdictStanding]] = {}
    for verdict in verdict_standings(account.rollout, config):
        if verdict.counts:
            verdicts.setdefault(verdict.branch_index, []).append(verdict)
    order = [index for index in ranked if index in standings]
    order += [index for index in standings if index not in ranked]
    return tuple(
        _strand(standings[index], ranked.get(index), pieces_of(account, index), verdicts.get(index, []))._replace(
            is_examined=_is_examined(account, standings[index])
        )
        for index in order
    )


def _strand(
    standing: BranchStanding, ranked: RankedBranch | None, pieces: list[Piece], verdicts: list[VerdictStanding]
) -> Strand:
    transcript = transcript_of(pieces)
    counting = tuple(sorted(verdicts, key=lambda each: each.kind))
    return Strand(standing, ranked, transcript, counting, signals_of(ranked, counting, transcript))


def _is_examined(account: Account, standing: BranchStanding) -> bool:
    """Whether a build verdict of the attempt looked for signs of a hack."""
    builds = [
        fact
        for fact in verdict_facts(account.rollout, standing.branch_index, standing.attempt)
        if isinstance(fact, BuildVerdict)
    ]
    return any(
        build.protected_paths_intact is not None or (build.baseline_tests is not None and build.tests is not None)
        for build in builds
    )


def parting(one: Transcript, other: Transcript) -> Parting | None:
    """Where two branches part; None when they are the same to their ends."""
    for number, (a, b) in enumerate(zip(one.turns, other.turns, strict=False)):
        if a.saw == b.saw:
            continue
        if a.did == b.did:
            return Parting(number, "the same words and calls, another result")
        if [(call.name, call.asked) for call in a.calls] != [(call.name, call.asked) for call in b.calls]:
            return Parting(number, "other calls")
        return Parting(number, "other words")
    if len(one.turns) == len(other.turns):
        return None
    return Parting(min(len(one.turns), len(other.turns)), "one of them goes on")
