"""Marks: the same bytes from every writer, small, and enough to tell late from repeated."""

from schemas.closures import Closure, RolloutClosed, RolloutSettled, SettledBranch
from schemas.events import AgentEvent, AgentEvents
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle, RolloutCancelled
from schemas.verdicts import BuildVerdict, CheckVerdict
from streams.log.topics import FACTS
from streams.services.live.marks import mark_of, mark_of_given_up, read_mark, repeats

SETTLED = RolloutSettled(
    settled_id="s", rollout_id="r", cause="complete", decided_at_ms=5, opened=True, config="{}", config_digest="",
    branches=(SettledBranch(branch_index=0, attempt=1, last_seq=9, verdict_ids=("v1",)), SettledBranch(branch_index=1)),
)  # fmt: skip
CLOSED = RolloutClosed(
    closed_id="c", rollout_id="r", settled_id="s", cause="complete", decided_at_ms=7, vote_ids=("w1",),
    read_to={topic.name: 40 + number for number, topic in enumerate(FACTS)},
)  # fmt: skip


def events(branch: int, attempt: int, first: int, count: int) -> AgentEvents:
    piece = tuple(AgentEvent(channel="c", event="e", data="{}") for _ in range(count))
    return AgentEvents(rollout_id="r", branch_index=branch, attempt=attempt, first_seq=first, events=piece)


def test_a_mark_says_where_the_closing_had_read_to() -> None:
    """The facts below these offsets were part of the decision."""
    mark = read_mark(mark_of(SETTLED, CLOSED))
    assert mark.read_to == CLOSED.read_to
    assert mark.closed_at == 7


def test_a_mark_depends_on_the_decisions_alone() -> None:
    """Two workers that close the same rollout write the same bytes; and few of them."""
    assert mark_of(SETTLED, CLOSED) == mark_of(SETTLED.model_copy(), CLOSED.model_copy())
    assert len(mark_of(SETTLED, CLOSED)) < 64


def test_repetitions_are_told_from_news() -> None:
    """Events inside what was pinned, pinned verdicts and votes, and another opening repeat; everything else is late."""
    mark = read_mark(mark_of(SETTLED, CLOSED))
    verdict = BuildVerdict(rollout_id="r", branch_index=0, verdict_id="v1", status="success")
    assert repeats(mark, events(0, 1, 3, 7))
    assert not repeats(mark, events(0, 1, 3, 8))
    assert not repeats(mark, events(0, 0, 0, 1))
    assert not repeats(mark, events(2, 0, 0, 1))
    assert repeats(mark, verdict)
    assert not repeats(mark, verdict.model_copy(update={"verdict_id": "v2"}))
    assert repeats(mark, JudgeVote(vote_id="w1", rollout_id="r", a=0, b=1))
    assert not repeats(mark, Lifecycle(cancelled=RolloutCancelled(rollout_id="r")))


def test_an_id_that_counted_is_news_in_another_branch_or_kind() -> None:
    """Where the settling pins kinds, a verdict repeats what counted only in its own branch and kind."""
    pin = SETTLED.branches[0].model_copy(update={"verdict_kinds": ("build",)})
    mark = read_mark(mark_of(SETTLED.model_copy(update={"branches": (pin, SETTLED.branches[1])}), CLOSED))
    verdict = BuildVerdict(rollout_id="r", branch_index=0, verdict_id="v1", status="success")
    assert repeats(mark, verdict)
    assert not repeats(mark, verdict.model_copy(update={"branch_index": 1}))
    assert not repeats(mark, CheckVerdict(rollout_id="r", branch_index=0, verdict_id="v1", name="lint", status="pass"))


def test_a_rollout_that_was_given_up_is_told_from_a_closed_one() -> None:
    """Nothing of it counts, so nothing repeats what counted; only an opening and decisions say nothing new."""
    mark = read_mark(mark_of_given_up(7, CLOSED.read_to))
    assert (mark.given_up, mark.closed_at, mark.read_to) == (True, 7, CLOSED.read_to)
    assert not read_mark(mark_of(SETTLED, CLOSED)).given_up
    assert not repeats(mark, events(0, 0, 0, 1))
    assert not repeats(mark, JudgeVote(vote_id="w1", rollout_id="r", a=0, b=1))
    assert repeats(mark, Closure(closed=CLOSED))
