"""Two verdicts with one id: the one that a settling pins counts wherever the log is folded again, whatever the other says."""

from itertools import permutations

import pytest

from agents.evidence.keys import generate_key
from agents.facts.fact import Fact
from agents.rollouts.closure import close_now
from agents.rollouts.emission import emit
from agents.rollouts.missing_facts import missing
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Complaint, Rollout
from agents.rollouts.settlement import settle_now
from agents.trust.verdict_signature import content_digest, sign_verdict
from schemas.closures import Closure
from schemas.codec.body import encode
from schemas.emission import EmissionConfig
from schemas.verdicts import BuildVerdict
from tests.agents.rollouts.test_fold import facts_of

CONFIG = EmissionConfig()
OPENED, EVENTS = facts_of(
    {"type": "rollout", "task": "t", "branches": 1},
    {"type": "event", "branch_index": 0, "event": {"event": "final_answer", "data": {"answer": "a"}}},
)
REAL = sign_verdict(
    BuildVerdict(rollout_id="r", branch_index=0, verdict_id="v", status="failure", exit_code=1), generate_key()
)
FORGED = BuildVerdict(rollout_id="r", branch_index=0, verdict_id="v", status="success", exit_code=0)


def folded(*facts: Fact) -> tuple[Rollout, list[Complaint]]:
    rollout = Rollout("r")
    complaints = [
        complaint for at, fact in enumerate(facts) for complaint in rollout.add(fact, 10, (type(fact).__name__, 0, at))
    ]
    return rollout, complaints


def decided(*facts: Fact) -> list[Closure]:
    """The settling and the closing that these facts lead to."""
    rollout, _ = folded(*facts)
    settled = Closure(settled=settle_now(rollout, CONFIG, ClosingPolicy()))
    rollout.add(settled, 10, ("Closure", 0, 0))
    return [settled, Closure(closed=close_now(rollout))]


SETTLED, CLOSED = decided(OPENED, EVENTS, REAL)
"""By a worker that had not let the forged verdict in."""


def test_a_settling_pins_the_content_of_signed_verdicts_only() -> None:
    """Without a signature it is what it was before there were any."""
    assert SETTLED.settled is not None
    assert SETTLED.settled.branches[0].verdict_digests == (content_digest(REAL),)
    unsigned = decided(OPENED, EVENTS, FORGED)[0].settled
    assert unsigned is not None
    assert unsigned.branches[0].verdict_digests == ()


def test_the_pinned_verdict_counts_in_every_order_of_the_log() -> None:
    """A forged one with its id, before or behind it, before or behind the decisions, changes no byte."""
    expected = emit(folded(OPENED, EVENTS, REAL, SETTLED, CLOSED)[0])
    for order in permutations((FORGED, REAL, SETTLED, EVENTS)):
        rollout, _ = folded(OPENED, *order, CLOSED)
        assert rollout.has_closed_facts()
        made = emit(rollout)
        assert encode(made.ranking) == encode(expected.ranking)
        assert made.messages == expected.messages


def test_a_forged_verdict_never_stands_in_for_a_pinned_one_that_is_lost() -> None:
    """The rollout is not whole, and says which verdict is missing."""
    rollout, _ = folded(OPENED, EVENTS, FORGED, SETTLED, CLOSED)
    assert not rollout.has_closed_facts()
    assert missing(rollout) == ["branch 0: verdicts v"]


@pytest.mark.parametrize(
    ("second", "reasons"), [(REAL, []), (FORGED, ["conflict"]), (sign_verdict(REAL, generate_key()), [])]
)
def test_the_same_content_under_another_signature_is_a_repetition(second: BuildVerdict, reasons: list[str]) -> None:
    """Other content is a conflict."""
    assert [each.reason for each in folded(OPENED, EVENTS, REAL, second)[1]] == reasons
