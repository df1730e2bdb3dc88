"""The reasons why an open rollout waits, in sentences: from the folded facts and the policy alone."""

from agents.judge.schedule import schedule
from agents.rollouts.branch_outcomes import branch_outcomes, required_verdicts
from agents.rollouts.closure import missing_calls
from agents.rollouts.pinned_config import pinned_config
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from agents.rollouts.settlement import next_cutoff
from agents.verdicts.meaning import UNDECIDED_ENDS, comparable, counting, is_final
from schemas.emission import EmissionConfig
from streams.log.terminal_text import listed, moment, several
from streams.views.branch_status import verdict_facts


def waiting_for(rollout: Rollout, config: EmissionConfig, policy: ClosingPolicy) -> list[str]:
    """The reasons why a rollout does not settle or close, in sentences; empty when it has closed."""
    if rollout.closed is not None or rollout.started_at is None:
        return []
    if rollout.settled is not None:
        return _waiting_for_votes(rollout)
    cutoff = next_cutoff(rollout, policy)
    held = ["held: its input has not ended; `braid ingest` it again, or `braid close` it"]
    return [
        *(held if rollout.held and rollout.released_at is None else []),
        *_waiting_for_branches(rollout, config),
        f"settles at {moment(cutoff.at)} at the latest ({cutoff.cause})",
    ]


def _waiting_for_branches(rollout: Rollout, config: EmissionConfig) -> list[str]:
    if rollout.opened is None or rollout.opened.branches is None:
        return ["the number of branches is not known: no opening names it"]
    silent, running, gaps, unjudged = [], [], [], []
    required = required_verdicts(rollout, config)
    for index in range(rollout.opened.branches):
        attempts = rollout.branches.get(index)
        if not attempts:
            silent.append(str(index))
            continue
        number = max(attempts)  # a newer attempt that is still running is waited for
        view = attempts[number].view()
        if view.status is None:
            running.append(str(index))
        elif view.gaps:
            gaps.append(f"{index} (seq {listed([str(seq) for seq in view.gaps], 3)})")
        elif view.status not in UNDECIDED_ENDS:
            verdicts = counting(verdict_facts(rollout, index, number))
            missing = [kind for kind in required if kind not in verdicts or not is_final(verdicts[kind])]
            missing += [kind for kind in rollout.opened.awaited if kind not in verdicts and kind not in missing]
            unjudged += [f"{kind} of branch {index}" for kind in missing]
    said = (
        ("not heard of:", "branch", silent), ("still running:", "branch", running), ("events are missing:", "branch", gaps),
        ("no final verdict:", "", unjudged),
    )  # fmt: skip
    return [
        " ".join(filter(None, (what, noun and (noun if len(which) == 1 else f"{noun}es"), listed(which, 8))))
        for what, noun, which in said
        if which
    ]


def _waiting_for_votes(rollout: Rollout) -> list[str]:
    settled = rollout.settled
    assert settled is not None
    if not rollout.has_settled_facts():
        return ["facts that were settled have not been read"]
    if settled.judge_deadline_ms is None:
        return ["the worker, to close it"]
    config = pinned_config(settled)
    planned = schedule(comparable(branch_outcomes(rollout, config, settled.branches)), config.judge)
    missing = missing_calls(rollout, planned, config.judge, settled.judge_deadline_ms)
    asked = planned.calls(config.judge)
    return [
        f"{several(missing, 'vote')} of {asked} to come",
        f"closes at {moment(settled.judge_deadline_ms)} at the latest (judge_deadline)",
    ]
