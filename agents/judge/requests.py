"""What a judge is asked about a settled rollout: a pure function of the settling and the facts that it pins.

One request for every scheduled pair. Two identical judged texts are not sent: they are a tie by content, which becomes a
vote of its own (judge `content`, sample 0), so that the closing pins it like any other.
"""

from hashlib import sha256
from typing import NamedTuple

from agents.judge.judged_text import Branch, fitting, judged_texts
from agents.judge.schedule import Pair, schedule
from agents.judge.votes import content_tie
from agents.rollouts.decide import objective_statuses, pinned_config
from agents.rollouts.emit import branch_record
from agents.rollouts.rollout import Rollout
from schemas.branches import BranchRecord
from schemas.emission import EmissionConfig
from schemas.jsontext import compact
from schemas.judging import JudgeRequest, JudgeVote


class Asking(NamedTuple):
    """What follows from a settling for the judge."""

    requests: tuple[JudgeRequest, ...]
    """In the order of the schedule."""
    ties: tuple[JudgeVote, ...]
    """Pairs that need no judge."""
    own_model: bool
    """Whether the judge is the model that made one of the branches: it would judge its own work."""


def judge_requests(rollout: Rollout) -> Asking:
    """The requests of a rollout that has settled and whose settled facts have been read.

    Raises BrokenLogError when the log does not hold what was pinned.
    """
    settled, pinned = rollout.settled, rollout.pinned_verdicts()
    assert settled is not None
    assert pinned is not None
    config = pinned_config(settled)
    pairs = schedule(objective_statuses(rollout, config, settled.branches), config.judge)
    asked = {index for pair in pairs for index in pair}
    records = {
        pin.branch_index: branch_record(rollout, pin, config, {})
        for pin in settled.branches
        if pin.branch_index in asked
    }  # fmt: skip
    if settled.cause == "cancelled" or not records:
        return Asking((), (), own_model=False)
    return _ask(rollout, config, pairs, {index: Branch(record, pinned[index]) for index, record in records.items()})


def _ask(rollout: Rollout, config: EmissionConfig, pairs: list[Pair], branches: dict[int, Branch]) -> Asking:
    settled = rollout.settled
    assert settled is not None
    texts = judged_texts(branches, rollout.opened if settled.opened else None, config.judge.max_text_bytes)
    rubric = rubric_hash(config.judge.rubric)
    task = fitting(branches[pairs[0].a].record.task, config.judge.max_text_bytes)
    requests, ties = [], []
    for pair in pairs:
        request = JudgeRequest(
            request_id=request_id(settled.settled_id, pair, rubric),
            rollout_id=rollout.rollout_id,
            settled_id=settled.settled_id,
            task=task,
            shared_prefix=texts.shared_prefix,
            a=texts.branches[pair.a],
            b=texts.branches[pair.b],
            samples=config.judge.samples,
            rubric=config.judge.rubric,
            rubric_hash=rubric,
        )
        if texts.branches[pair.a].digest == texts.branches[pair.b].digest:
            ties.append(content_tie(request))
        else:
            requests.append(request)
    own = any(_model(branch.record) == config.judge.model for branch in branches.values())
    return Asking(tuple(requests), tuple(ties), own_model=own and bool(config.judge.model))


def request_id(settled_id: str, pair: Pair, rubric: str) -> str:
    """The same pair of the same settling under the same rubric is the same request, however often it is written."""
    return sha256(compact(["request", settled_id, pair.a, pair.b, rubric]).encode()).hexdigest()[:32]


def rubric_hash(rubric: str) -> str:
    """SHA-256 of the rubric: its version."""
    return sha256(rubric.encode()).hexdigest()


def _model(record: BranchRecord) -> str | None:
    return record.agent.model if record.agent is not None else None
