"""Scores of single branches: who is scored, when a rollout waits for them, and what becomes of them."""

import pytest

from agents.judge.answers import Answer
from agents.judge.prompt import prompt_of
from agents.judge.schedule import Pair, Schedule, schedule
from agents.judge.votes import Asked, answered, calls_of, missing
from agents.rollouts.closure import close, missing_calls
from agents.rollouts.emission import Emission, emit
from agents.rollouts.judge_requests import judge_requests
from agents.rollouts.rollout import Rollout
from schemas.closures import Closure, RolloutClosed
from schemas.emission import EmissionConfig, JudgeConfig, RankingConfig, Weight
from schemas.judging import JudgeRequest, JudgeVote
from schemas.rankings import ObjectiveStatus
from schemas.training import PpoRecord
from tests.agents.rollouts.test_judge_requests import config, lines, settled

WEIGHTS = RankingConfig(
    weights=(
        Weight(key="objective", weight=1.0, component="objective"),
        Weight(key="judge", weight=0.3, component="judge"),
        Weight(key="scored", weight=0.1, component="judge_scalar"),
    )
)


def scoring(mode: str = "scalar", **judge: object) -> EmissionConfig:
    return config(mode=mode, **judge).model_copy(update={"ranking": WEIGHTS})


def vote(request: JudgeRequest, sample: int, score: float | None) -> JudgeVote:
    """The judge's score of a branch; None: it gave no answer."""
    call = calls_of(request)[sample]
    asked = Asked(call, "m", prompt_of(request, call).hash)
    return missing(request, asked, "timeout") if score is None else answered(request, asked, Answer(None, score, "so"))


def closed(rollout: Rollout, scores: dict[int, list[float | None]]) -> Emission:
    """The rollout with the scores of its branches, closed."""
    for request in judge_requests(rollout).requests:
        for sample, score in enumerate(scores[request.a.branch_index]):
            made = vote(request, sample, score)
            rollout.add(made, 6000, ("v", request.a.branch_index, sample))
    decision = close(rollout, None, {})
    assert isinstance(decision, RolloutClosed)
    assert decision.cause == "complete"
    rollout.add(Closure(closed=decision), 7000, ("c", 0, 1))
    return emit(rollout)


def rewards_of(emission: Emission) -> dict[int, float]:
    return {row.branch_index: row.reward for row in emission.rows if isinstance(row, PpoRecord)}


@pytest.mark.parametrize(
    ("mode", "limit", "expected"),
    [
        ("pairwise", 120, Schedule((Pair(0, 3),), ())),
        ("scalar", 120, Schedule((), (0, 3, 2))),
        ("pairwise+scalar", 120, Schedule((Pair(0, 3),), (0, 3, 2))),
        ("pairwise+scalar", 9, Schedule((Pair(0, 3),), (0,))),
        ("scalar", 8, Schedule((), (0, 3))),
        ("scalar", 2, Schedule((), ())),
    ],
)
def test_ranked_branches_are_scored_within_the_limit(mode: str, limit: int, expected: Schedule) -> None:
    """Pairs come first, then whole branches, tier by tier; an unknown branch is not judged."""
    statuses: dict[int, ObjectiveStatus] = {0: "pass", 1: "unknown", 2: "fail", 3: "pass"}
    judge = JudgeConfig.model_validate({"kind": "scripted", "mode": mode, "max_judge_calls": limit})
    found = schedule(statuses, judge)
    assert found == expected
    assert found.calls(judge) <= limit
    assert not schedule(statuses, JudgeConfig.model_validate({"kind": "none", "mode": mode})).asks


def test_the_default_configuration_keeps_its_text() -> None:
    """A setting that was added later is pinned only where it has a value: older logs keep their digests."""
    assert "scalar" not in EmissionConfig().text
    chosen = scoring(scalar_samples=5)
    assert EmissionConfig.model_validate_json(chosen.text) == chosen


def test_a_scored_branch_shows_all_of_its_work() -> None:
    """One request for each branch, asked in one order; nothing of it is taken out as shared with others."""
    asking = judge_requests(settled(lines(["alpha", "beta"]), scoring()))
    assert [(r.a.branch_index, r.b, r.samples) for r in asking.requests] == [(0, None, 3), (1, None, 3)]
    request = asking.requests[0]
    assert "cat shared.txt" in request.a.text
    assert "Be brief." in request.shared_prefix
    assert [call.order for call in calls_of(request)] == ["ab"] * 3
    assert prompt_of(request, calls_of(request)[0]).scalar
    both = judge_requests(settled(lines(["alpha", "beta"]), scoring("pairwise+scalar"))).requests
    assert [request.b is None for request in both] == [False, True, True]
    assert len({request.request_id for request in both}) == 3


def test_the_rollout_waits_for_every_score() -> None:
    """A call that has neither a score nor a cause is still to come; a cause is an answer to wait no longer."""
    rollout = settled(lines(["alpha", "beta"]), scoring(scalar_samples=2))
    assert rollout.settled is not None
    assert rollout.settled.judge_deadline_ms is not None
    requests = judge_requests(rollout).requests
    for number, (request, sample, score) in enumerate(
        [(requests[0], 0, 7.0), (requests[0], 1, None), (requests[1], 1, 3.0)]
    ):
        rollout.add(vote(request, sample, score), 6000, ("v", 0, number))
    judge = scoring(scalar_samples=2).judge
    assert missing_calls(rollout, Schedule((), (0, 1)), judge, 10_000) == 1
    assert close(rollout, 10_000, {}) is None
    rollout.add(vote(requests[1], 0, None), 6000, ("v", 0, 3))
    decision = close(rollout, 10_000, {})
    assert isinstance(decision, RolloutClosed)
    assert (decision.cause, len(decision.vote_ids)) == ("complete", 4)


def test_the_mean_of_valid_scores_is_a_component_of_its_own() -> None:
    """Calls without an answer are left out; without any there is no score, and the weight goes to what is known."""
    emission = closed(
        settled(lines(["alpha", "beta", "gamma"]), scoring()),
        {0: [8.0, None, 9.0], 1: [0.0, 0.0, 0.0], 2: [None, None, None]},
    )
    ranked = {branch.branch_index: branch for branch in emission.ranking.branches}
    assert {index: branch.judge_scalar for index, branch in ranked.items()} == {0: 8.5, 1: 0.0, 2: None}
    assert [(part.key, part.value) for part in ranked[0].components] == [
        ("objective", 1.0), ("judge", None), ("scored", 0.85),
    ]  # fmt: skip
    assert [ranked[index].total for index in (0, 1, 2)] == pytest.approx([1.4 * 1.085 / 1.1, 1.4 / 1.1, 1.4])
    results = {record.run_id: record.verifier_results for record in emission.evidence}
    assert [(each.verifier_id, each.passed, each.score) for each in results["r/b0/a0"]] == [
        ("build", True, None), ("judge_scalar:m", True, 8.5),
    ]  # fmt: skip
    assert [each.verifier_id for each in results["r/b2/a0"]] == ["build"]
    # Rewards of verified branches are the verdicts'; the score stands beside.
    assert rewards_of(emission) == {0: 1.0, 1: 1.0, 2: 1.0}


def test_where_nothing_is_verified_the_score_is_the_reward() -> None:
    """Only with a weight of its own; without an answer there is no reward."""
    said = lines(["alpha", "beta"])
    said[0] = said[0] | {"required": []}
    scores: dict[int, list[float | None]] = {0: [9.0, 6.0, None], 1: [None, None, None]}
    emission = closed(settled(said, scoring()), scores)
    assert rewards_of(emission) == {0: 0.75}
    assert rewards_of(closed(settled(said, config(mode="scalar")), scores)) == {}


def test_a_score_outside_the_scale_does_not_count() -> None:
    """70 is no score from 0 to 10: the vote is refused with its reason."""
    rollout = settled(lines(["alpha", "beta"]), scoring())
    made = vote(judge_requests(rollout).requests[0], 0, 7.0).model_copy(update={"score": 70.0})
    (complaint,) = rollout.add(made, 6000, ("v", 0, 0))
    assert (complaint.reason, complaint.message) == ("bad_vote", "score: expected 0 to 10, found 70")
    assert not rollout.votes
