"""What a judge is asked about a settled rollout: a pure function of the settling and the facts that it pins.

One request for every scheduled pair, then one for every branch that is scored by itself. Two identical judged texts are not
sent: they are a tie by content, which becomes a vote of its own (judge `content`, sample 0), so that the closing pins it like
any other.
"""

from hashlib import sha256
from typing import NamedTuple

from agents.judge.judged_text import Branch, fitting, judged_texts
from agents.judge.schedule import Schedule, schedule
from agents.judge.votes import content_tie
from agents.rollouts.broken import breaks_alone
from agents.rollouts.decide import branch_outcomes, pinned_config
from agents.rollouts.emit import branch_record
from agents.rollouts.rollout import Rollout
from agents.verdicts.meaning import comparable, terms_of
from schemas.branches import BranchRecord
from schemas.codec.body import Bodies
from schemas.emission import EmissionConfig
from schemas.jsontext import compact
from schemas.judging import JudgedBranch, JudgeRequest, JudgeVote


class Asking(NamedTuple):
    """What follows from a settling for the judge."""

    requests: tuple[JudgeRequest, ...]
    """In the order of the schedule."""
    ties: tuple[JudgeVote, ...]
    """Pairs that need no judge."""
    own_model: bool
    """Whether the judge is the model that made one of the branches: it would judge its own work."""


@breaks_alone
def judge_requests(rollout: Rollout) -> Asking:
    """The requests of a rollout that has settled and whose settled facts have been read.

    Raises BrokenLogError when the log does not hold what was pinned.
    """
    settled, pinned = rollout.settled, rollout.pinned_verdicts()
    assert settled is not None
    assert pinned is not None
    config = pinned_config(settled)
    asked = schedule(comparable(branch_outcomes(rollout, config, settled.branches)), config.judge)
    if settled.cause == "cancelled" or not asked.asks:
        return Asking((), (), own_model=False)
    judged = {index for pair in asked.pairs for index in pair}.union(asked.scored)
    branches = {
        pin.branch_index: Branch(branch_record(rollout, pin, config, Bodies(config.version)), pinned[pin.branch_index])
        for pin in settled.branches
        if pin.branch_index in judged
    }
    return _ask(rollout, config, asked, branches)


def _ask(rollout: Rollout, config: EmissionConfig, asked: Schedule, branches: dict[int, Branch]) -> Asking:
    settled = rollout.settled
    assert settled is not None
    judge, rubric = config.judge, rubric_hash(config.judge.rubric)
    opened = rollout.opened if settled.opened else None
    first = asked.pairs[0].a if asked.pairs else asked.scored[0]
    terms = terms_of(config.version, opened)
    task = fitting(branches[first].record.task, judge.max_text_bytes)

    def request(a: JudgedBranch, b: JudgedBranch | None, shared_prefix: str) -> JudgeRequest:
        return JudgeRequest(
            request_id=request_id(settled.settled_id, a.branch_index, b.branch_index if b else None, rubric),
            rollout_id=rollout.rollout_id,
            settled_id=settled.settled_id,
            task=task,
            shared_prefix=shared_prefix,
            a=a,
            b=b,
            samples=judge.samples if b is not None else judge.scalar_samples,
            rubric=judge.rubric,
            rubric_hash=rubric,
        )

    requests, ties = [], []
    paired = {index for pair in asked.pairs for index in pair}
    compared = judged_texts(
        {index: branch for index, branch in branches.items() if index in paired}, opened, judge.max_text_bytes, terms
    )
    for pair in asked.pairs:
        made = request(compared.branches[pair.a], compared.branches[pair.b], compared.shared_prefix)
        if compared.branches[pair.a].digest == compared.branches[pair.b].digest:
            ties.append(content_tie(made))
        else:
            requests.append(made)
    for index in asked.scored:
        # By itself a branch shares nothing: all that it did is its own.
        alone = judged_texts({index: branches[index]}, opened, judge.max_text_bytes, terms)
        requests.append(request(alone.branches[index], None, alone.shared_prefix))
    own = any(_model(branch.record) == judge.model for branch in branches.values())
    return Asking(tuple(requests), tuple(ties), own_model=own and bool(judge.model))


def request_id(settled_id: str, a: int, b: int | None, rubric: str) -> str:
    """The same question about the same settling under the same rubric is the same request, however often it is written."""
    return sha256(compact(["request", settled_id, a, b, rubric]).encode()).hexdigest()[:32]


def rubric_hash(rubric: str) -> str:
    """SHA-256 of the rubric: its version."""
    return sha256(rubric.encode()).hexdigest()


def _model(record: BranchRecord) -> str | None:
    return record.agent.model if record.agent is not None else None
