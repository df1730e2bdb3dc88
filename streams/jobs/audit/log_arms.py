"""The arms of an experiment in the log: closed rollouts, made into records again, by the value of a label."""

from agents.audit.arms import Arm
from agents.rollouts.broken_log import BrokenLogError
from agents.rollouts.emission import emit
from streams.jobs.audit.log_rollouts import log_rollouts
from streams.log.progress import Say, quiet
from streams.log.reader import LogReader


async def read_arms(log: LogReader, label: str, say: Say = quiet) -> dict[str, Arm]:
    """Read the log; returns the arms by name. Rollouts without the label, or that cannot be made again, belong to no
    arm.
    """
    arms: dict[str, Arm] = {}
    async for rollout in log_rollouts(log, say):
        name = None if rollout.opened is None else rollout.opened.labels.get(label)
        if name is None or not rollout.has_closed_facts():
            continue
        try:
            arms.setdefault(name, Arm(name)).add(emit(rollout, evidence=False))
        except BrokenLogError:
            continue
    return arms
