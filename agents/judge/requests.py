"""The questions to a judge about a settled rollout, as a pure function of the settling and the records of its branches.

One request for every scheduled pair, then one for every branch that is scored alone. Two identical judged texts are not
sent: they are a tie by content, which becomes a vote of its own (judge `content`, sample 0), so that the closing pins it like
any other.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from agents.judge.judged_text import Branch, fitting, judged_texts
from agents.judge.schedule import Schedule
from agents.judge.votes import content_tie
from agents.verdicts.meaning import terms_of
from schemas.branches import BranchRecord
from schemas.closures import RolloutSettled
from schemas.emission import EmissionConfig
from schemas.jsontext import compact
from schemas.judging import JudgedBranch, JudgeRequest, JudgeVote
from schemas.lifecycle import RolloutOpened


class Asking(NamedTuple):
    """The requests and votes that follow from a settling."""

    requests: tuple[JudgeRequest, ...] = ()
    """In the order of the schedule."""
    ties: tuple[JudgeVote, ...] = ()
    """Pairs that need no judge."""
    own_model: bool = False
    """Whether the judge is the model of one of the branches: it would judge its own work."""


def asking_of(
    settled: RolloutSettled,
    opened: RolloutOpened | None,
    config: EmissionConfig,
    asked: Schedule,
    branches: Mapping[int, Branch],
) -> Asking:
    """The requests of a schedule that asks for anything; `branches` has every branch in it."""
    judge, rubric = config.judge, rubric_hash(config.judge.rubric)
    first = asked.pairs[0].a if asked.pairs else asked.scored[0]
    terms = terms_of(config.version, opened)
    task = fitting(branches[first].record.task, judge.max_text_bytes)

    def request(a: JudgedBranch, b: JudgedBranch | None, shared_prefix: str) -> JudgeRequest:
        return JudgeRequest(
            request_id=request_id(settled.settled_id, a.branch_index, b.branch_index if b else None, rubric),
            rollout_id=settled.rollout_id,
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
        # a branch that is scored alone shares no beginning: all of it is its own
        alone = judged_texts({index: branches[index]}, opened, judge.max_text_bytes, terms)
        requests.append(request(alone.branches[index], None, alone.shared_prefix))
    own = any(_model(branch.record) == judge.model for branch in branches.values())
    return Asking(tuple(requests), tuple(ties), own_model=own and bool(judge.model))


def request_id(settled_id: str, a: int, b: int | None, rubric: str) -> str:
    """The same question about the same settling under the same rubric has the same id, however often it is written."""
    return sha256(compact(["request", settled_id, a, b, rubric]).encode()).hexdigest()[:32]


def rubric_hash(rubric: str) -> str:
    """SHA-256 of the rubric: its version."""
    return sha256(rubric.encode()).hexdigest()


def _model(record: BranchRecord) -> str | None:
    return record.agent.model if record.agent is not None else None
