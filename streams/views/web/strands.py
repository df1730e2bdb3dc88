"""The strands of a rollout: each branch with its turns, outcome, rank and verdicts, in the order of the ranking."""

from collections.abc import Sequence
from typing import NamedTuple

from agents.hacks.verdict import HACKS, looks_of
from agents.rollouts.hack_signals import told_by
from agents.rollouts.settlement import counting_attempt
from agents.summarize.pieces import Piece
from agents.verdicts.meaning import Verdict, counting
from schemas.emission import EmissionConfig
from schemas.rankings import RankedBranch
from schemas.verdicts import BuildVerdict, CheckVerdict
from streams.log.terminal_text import line
from streams.views.account import Account
from streams.views.branch_status import (
    BranchStanding,
    VerdictStanding,
    branch_standings,
    verdict_facts,
    verdict_standings,
)
from streams.views.web.signals import Looks, Signal, signals_of
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
    looks: Looks = Looks()
    """The verdicts that looked for signs of a hack."""

    @property
    def branch(self) -> int:
        """The branch."""
        return self.standing.branch_index

    @property
    def objective(self) -> str:
        """Its outcome."""
        return self.ranked.objective_status if self.ranked is not None else self.standing.objective

    @property
    def flags(self) -> tuple[str, ...]:
        """Oddities of the branch."""
        return self.ranked.flags if self.ranked is not None else ()


class Parting(NamedTuple):
    """The turn at which two strands diverge."""

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
    """All branches: best first, then those without a rank, in the order of the ranking; by index while there is none."""
    standings = {each.branch_index: each for each in branch_standings(account.rollout, config)}
    ranked = {} if account.ranking is None else {each.branch_index: each for each in account.ranking.branches}
    verdicts: dict[int, list[VerdictStanding]] = {}
    for verdict in verdict_standings(account.rollout, config):
        if verdict.counts:
            verdicts.setdefault(verdict.branch_index, []).append(verdict)
    order = [index for index in ranked if index in standings]
    order += [index for index in standings if index not in ranked]
    if account.ranking is not None:  # branches without a rank by their outcomes: a tier is one block
        tiers = ("pass", "not_required", "fail", "unknown")
        places = {index: tiers.index(each.objective_status) for index, each in ranked.items() if each.rank is None}
        order.sort(key=lambda index: places.get(index, -1 if index in ranked else len(tiers)))
    return tuple(_strand(account, standings[index], ranked.get(index), verdicts.get(index, [])) for index in order)


def _strand(
    account: Account, standing: BranchStanding, ranked: RankedBranch | None, verdicts: list[VerdictStanding]
) -> Strand:
    transcript = transcript_of(pieces_of(account, standing.branch_index))
    ordered = tuple(sorted(verdicts, key=lambda each: each.kind))
    facts = verdict_facts(account.rollout, standing.branch_index, standing.attempt)
    hacks = counting(facts).get(HACKS)
    so_far = told_by(hacks) if isinstance(hacks, CheckVerdict) else ()
    signals = signals_of(ranked, ordered, transcript, so_far)
    return Strand(standing, ranked, transcript, ordered, signals, _looks(facts, hacks))


def _looks(facts: Sequence[Verdict], hacks: Verdict | None) -> Looks:
    """Return which hack checks ran on an attempt: those of the build verifier and those of the `hacks` verdict."""
    build = any(
        each.protected_paths_intact is not None or (each.baseline_tests is not None and each.tests is not None)
        for each in facts
        if isinstance(each, BuildVerdict)
    )
    if not isinstance(hacks, CheckVerdict):
        return Looks(build)
    made = [line(str(each.get("name"))) for each in looks_of(hacks.details) if each.get("made") is True]
    return Looks(build, tuple(made), bool(made) or hacks.status != "unknown")


def parting(one: Transcript, other: Transcript) -> Parting | None:
    """Where two branches diverge; None if they are the same to their ends."""
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
