"""Held rollouts: nothing that was appended before the release is too late, in whatever order topics are read."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.facts.fact import Fact
from agents.rollouts.closure import close_now
from agents.rollouts.decision import decide
from agents.rollouts.emission import Emission, emit
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Complaint, Rollout
from agents.rollouts.settlement import settle_now
from agents.rollouts.status import Status
from schemas.closures import Closure, RolloutClosed, RolloutSettled
from schemas.emission import EmissionConfig
from tests.agents.rollouts.test_fold import Log, appended, branch_lines, event, facts_of, fold, topic_of

CONFIG, POLICY = EmissionConfig(), ClosingPolicy(deadline_ms=10_000, judge_deadline_ms=5_000)
PASS, FAIL = {"status": "success", "exit_code": 0}, {"status": "failure", "exit_code": 1}
OPENING = {"type": "rollout", "task": "t", "branches": 2, "held": True}
RELEASE = {"type": "close", "end_of_input": True, "when_complete": True}


def lines() -> list[dict[str, object]]:
    """Two branches whose verdicts contradict each other, a check that is not required, and votes; complete in the
    middle."""
    votes = [
        {"type": "vote", "a": 0, "b": 1, "order": order, "sample": sample, "preferred": "a", "judge": "j"}
        for order in ("ab", "ba") for sample in (0, 1)
    ]  # fmt: skip
    return [
        votes[0],
        *branch_lines(0, "good"),
        OPENING,
        {"type": "build", "branch_index": 0, **PASS},
        *branch_lines(1, "fine"),
        {"type": "build", "branch_index": 1, **PASS},
        votes[1],
        {"type": "build", "branch_index": 0, **FAIL},
        {"type": "check", "branch_index": 0, "name": "lint", "status": "pass"},
        {"type": "build", "branch_index": 0, **PASS},
        *votes[2:],
    ]


class Reader:
    """Reads topics in an order of its own and decides after every record, as the worker does."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._ends = max(at for facts in log.values() for _, at in facts)
        self._read = dict.fromkeys(sorted(log), 0)
        self.rollout = Rollout("r")
        self.complaints: list[Complaint] = []

    def unread(self) -> list[str]:
        return [topic for topic, position in self._read.items() if position < len(self._log[topic])]

    def read(self, topic: str) -> RolloutSettled | RolloutClosed | None:
        fact, at = self._log[topic][self._read[topic]]
        self._read[topic] += 1
        self.complaints += self.rollout.add(fact, at, (topic, 0, self._read[topic]))
        return self.decide()

    def decide(self) -> RolloutSettled | RolloutClosed | None:
        return decide(self.rollout, CONFIG, POLICY, self._watermark(), {})

    def _watermark(self) -> int | None:
        known = [
            self._ends if self._read[topic] == len(facts) else (facts[self._read[topic] - 1][1] - 1 if self._read[topic] else 0)
            for topic, facts in self._log.items() if topic != "Closure"
        ]  # fmt: skip
        return min(known)


@given(st.integers(0, 2**32))
def test_every_fact_before_the_release_counts(seed: int) -> None:
    """Whichever topic is read first and whenever a worker dies, all verdicts and votes count and nothing is late."""
    chance = random.Random(seed)
    broken_off = lines()[: chance.randint(0, len(lines()))]  # by a writer that was killed, and then began anew
    log: Log = {**appended([*facts_of(*broken_off), *facts_of(*lines(), RELEASE)]), "Closure": []}
    reader = Reader(log)
    while reader.rollout.status is not Status.CLOSED:
        unread = reader.unread()
        if unread and chance.random() < 0.05:
            reader = Reader(log)  # killed: all is read again
            continue
        decision = reader.read(chance.choice(unread)) if unread else reader.decide()
        if decision is not None:
            closure = Closure(settled=decision) if isinstance(decision, RolloutSettled) else Closure(closed=decision)
            log["Closure"].append((closure, 1_000))
    assert [(each.reason, each.message) for each in reader.complaints] == []
    settled, closed = reader.rollout.settled, reader.rollout.closed
    assert settled is not None
    assert closed is not None
    expected, _ = fold((fact, at) for at, fact in enumerate(facts_of(*lines()), 1))
    assert settled.cause == "complete"
    assert settled.branches == settle_now(expected, CONFIG, POLICY).branches
    assert len(closed.vote_ids) == 4


def test_a_held_rollout_settles_when_its_release_has_been_passed() -> None:
    """Complete is not enough, nor is the release: everything up to it has to be read."""
    facts = [*stamped(facts_of(*lines()))]
    rollout, _ = fold(facts)
    end = len(facts)
    assert decide(rollout, CONFIG, POLICY, end + 100, {}) is None
    release(rollout, end + 1)
    assert decide(rollout, CONFIG, POLICY, end, {}) is None
    settled = decide(rollout, CONFIG, POLICY, end + 1, {})
    assert isinstance(settled, RolloutSettled)
    assert (settled.cause, settled.decided_at_ms) == ("complete", end + 1)


def test_without_a_release_the_deadline_holds() -> None:
    """An input that broke off leaves a rollout that waits no longer than any other."""
    rollout, _ = fold(stamped(facts_of(OPENING | {"deadline_ms": 50}, *lines()[1:6])))
    assert decide(rollout, CONFIG, POLICY, 50, {}) is None
    settled = decide(rollout, CONFIG, POLICY, 51, {})
    assert isinstance(settled, RolloutSettled)
    assert settled.cause == "deadline"


def test_a_released_rollout_that_is_not_complete_waits() -> None:
    """Verdicts may come from elsewhere: the last of them settles it."""
    facts = facts_of(OPENING | {"branches": 1}, *branch_lines(0, "x"))
    rollout, _ = fold(stamped(facts))
    release(rollout, 20)
    assert decide(rollout, CONFIG, POLICY, 30, {}) is None
    (verdict,) = facts_of({"type": "build", "branch_index": 0, **PASS})
    assert rollout.add(verdict, 40, ("BuildVerdict", 0, 0)) == []
    settled = decide(rollout, CONFIG, POLICY, 30, {})
    assert isinstance(settled, RolloutSettled)
    assert (settled.cause, settled.decided_at_ms) == ("complete", 40)


def test_an_opening_said_again_holds_again() -> None:
    """A second input about a rollout is no conflict, and is read to its end before the rollout settles."""
    rollout, _ = fold(stamped(facts_of(*lines())))
    release(rollout, 100)
    plain, held = facts_of({key: value for key, value in OPENING.items() if key != "held"}, OPENING)
    assert [rollout.add(fact, 110, ("Lifecycle", 0, 5)) for fact in (plain, held)] == [[], []]
    assert decide(rollout, CONFIG, POLICY, 120, {}) is None
    release(rollout, 130)
    assert isinstance(decide(rollout, CONFIG, POLICY, 130, {}), RolloutSettled)
    (other,) = facts_of(OPENING | {"task": "another"})
    assert [each.reason for each in rollout.add(other, 140, ("Lifecycle", 0, 6))] == ["conflict"]


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ([{"type": "close", "end_of_input": True}], "complete"),
        ([{"type": "cancel"}], "cancelled"),
        ([{"type": "cancel"}, RELEASE], "cancelled"),
    ],
)
def test_an_end_holds_at_its_own_time(ends: list[dict[str, object]], cause: str) -> None:
    """Closed or cancelled, a held rollout settles when everything up to that has been read, and not earlier."""
    rollout, _ = fold(stamped(facts_of(*lines())))
    for at, fact in enumerate(facts_of(*ends), 100):
        rollout.add(fact, at, ("Lifecycle", 0, at))
    assert decide(rollout, CONFIG, POLICY, 99, {}) is None
    settled = decide(rollout, CONFIG, POLICY, 101, {})
    assert isinstance(settled, RolloutSettled)
    assert (settled.cause, settled.decided_at_ms) == (cause, 100)


def test_one_id_may_stand_for_verdicts_of_several_branches_and_kinds() -> None:
    """A verdict repeats another only with the same branch, kind and id; the same one with other content is a conflict."""
    same = {"verdict_id": "ci-1"}
    facts = facts_of(
        {"type": "rollout", "task": "t", "branches": 2},
        *branch_lines(0, "x"),
        *branch_lines(1, "y"),
        {"type": "build", "branch_index": 0, **same, **PASS},
        {"type": "check", "branch_index": 0, "name": "lint", **same, "status": "fail"},
        {"type": "build", "branch_index": 1, **same, **FAIL},
        {"type": "build", "branch_index": 1, **same, **FAIL},
        {"type": "build", "branch_index": 1, **same, **PASS},
    )
    rollout, complaints = fold(stamped(facts))
    assert [each.reason for each in complaints] == ["conflict"]
    ranked = {each.branch_index: each for each in closed_now(rollout).ranking.branches}
    assert [ranked[index].objective_status for index in (0, 1)] == ["pass", "fail"]
    assert rollout.settled is not None
    pinned = [(pin.verdict_ids, pin.verdict_kinds) for pin in rollout.settled.branches]
    assert pinned == [(("ci-1", "ci-1"), ("build", "lint")), (("ci-1",), ("build",))]


def test_ids_that_an_older_version_pinned_count_as_before() -> None:
    """Without kinds an id is that of a verdict of its branch, and of the kind that no other pinned id has."""
    facts = facts_of(
        {"type": "rollout", "task": "t", "branches": 1},
        *branch_lines(0, "x"),
        {"type": "build", "branch_index": 7, "verdict_id": "v", **FAIL},
        {"type": "build", "branch_index": 0, "verdict_id": "v", **FAIL},
        {"type": "check", "branch_index": 0, "verdict_id": "v", "name": "lint", "status": "pass"},
        {"type": "build", "branch_index": 0, "verdict_id": "w", **PASS},
    )
    rollout, _ = fold(stamped(facts))
    settled = settle_now(rollout, CONFIG, POLICY)
    older = settled.branches[0].model_copy(update={"verdict_kinds": ()})
    rollout.add(Closure(settled=settled.model_copy(update={"branches": (older,)})), 50, ("Closure", 0, 0))
    assert rollout.pinned_verdicts() == {0: facts[-2:]}


def test_of_pass_fail_pass_the_last_counts() -> None:
    """Verdicts without an id are told apart by their number among equal ones; the same lines again give the same ids."""
    said = [{"type": "build", "branch_index": 0, **each} for each in (PASS, FAIL, PASS)]
    facts = facts_of({"type": "rollout", "task": "t", "branches": 1}, *branch_lines(0, "x"), *said)
    again = facts_of(*said)
    rollout, complaints = fold(stamped([*facts, *again]))
    assert complaints == []
    assert len(rollout.verdicts) == 3
    assert closed_now(rollout).ranking.branches[0].objective_status == "pass"


def test_conflicts_are_pinned_once_each() -> None:
    """Events that differ from earlier ones with their seq are counted by content; what comes after the cutoff is not."""
    opening = {"type": "rollout", "task": "t", "branches": 1, "deadline_ms": 50}
    other = event(0, "status", {"other": 1}, 1)
    facts = [*stamped(facts_of(opening, *branch_lines(0, "x"), other, other))]
    (late,) = facts_of(event(0, "status", {"late": 1}, 2))
    rollout, complaints = fold([*facts, (late, 60)])
    assert [each.reason for each in complaints] == ["conflict"] * 3
    settled = decide(rollout, CONFIG, POLICY, 51, {})
    assert isinstance(settled, RolloutSettled)
    assert [pin.conflicts for pin in settled.branches] == [1]


def stamped(facts: list[Fact]) -> Iterator[tuple[Fact, int]]:
    return ((fact, at) for at, fact in enumerate(facts, 1))


def release(rollout: Rollout, at: int) -> None:
    (fact,) = facts_of(RELEASE)
    assert rollout.add(fact, at, (topic_of(fact), 0, at)) == []


def closed_now(rollout: Rollout) -> Emission:
    rollout.add(Closure(settled=settle_now(rollout, CONFIG, POLICY)), 500, ("Closure", 0, 0))
    rollout.add(Closure(closed=close_now(rollout)), 500, ("Closure", 0, 1))
    return emit(rollout)
