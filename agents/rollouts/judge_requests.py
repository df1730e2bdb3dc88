"""The requests to a judge about a settled rollout: its schedule, and the records of the branches in it."""

from agents.judge.judged_text import Branch
from agents.judge.requests import Asking, asking_of
from agents.judge.schedule import schedule
from agents.rollouts.branch_outcomes import branch_outcomes
from agents.rollouts.branch_records import branch_record
from agents.rollouts.broken_log import breaks_alone
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.rollout import Rollout
from agents.verdicts.meaning import comparable
from schemas.codec.body import Bodies


@breaks_alone
def judge_requests(rollout: Rollout) -> Asking:
    """The requests of a rollout that has settled and whose settled facts have been read.

    Raises BrokenLogError if pinned facts are not on the log.
    """
    settled, pinned = rollout.settled, rollout.pinned_verdicts()
    assert settled is not None
    assert pinned is not None
    config = pinned_config(settled)
    asked = schedule(comparable(branch_outcomes(rollout, config, settled.branches)), config.judge)
    if settled.cause == "cancelled" or not asked.asks:
        return Asking()
    judged = {index for pair in asked.pairs for index in pair}.union(asked.scored)
    branches = {
        pin.branch_index: Branch(branch_record(rollout, pin, config, Bodies(config.version)), pinned[pin.branch_index])
        for pin in settled.branches
        if pin.branch_index in judged
    }
    return asking_of(settled, rollout.opened if settled.opened else None, config, asked, branches)
