"""A compliance run: tasks in their modes on a log, verified by the verifier's code where no verifier follows that log."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from agents.compliance.compliance_verdict import Place, compliance_verdict
from agents.compliance.runner import BranchDone, ComplianceRunner, ModelFor, PlannedRollout, RunOptions
from agents.compliance.script_adapter import Place as AskedPlace
from agents.compliance.script_adapter import ScriptedRound, read_script
from agents.facts.fact import Fact
from agents.fork.fork_error import ForkError
from agents.fork.history import History, counting_ends, read_history
from agents.fork.log import Log
from agents.models.model import Model
from agents.trust.verdict_signature import sign_verdict
from agents.verdicts.meaning import COMPLIANCE, UNDECIDED_ENDS
from schemas.verdicts import CheckVerdict
from streams.cluster.config import Settings
from streams.cluster.model_client import open_model
from streams.cluster.signing_keys import require_trust, verifier_key
from streams.log.progress import Say, quiet
from streams.services.fork.logs import ForkLog

NO_CLOCK = 0
"""The time of scripted events, so that the same run gives the same bytes."""


class ModelChoice(NamedTuple):
    """The choice of a model."""

    kind: Literal["scripted", "anthropic", "openai"]
    script: Path | None = None


@asynccontextmanager
async def models(choice: ModelChoice, settings: Settings) -> AsyncIterator[ModelFor]:
    """The model of each round. Raises ModelSetupError or ForkError if it cannot be called."""
    if choice.kind == "scripted":
        if choice.script is None:
            raise ForkError("--model scripted plays answers from a file: give --script FILE")
        script, known = read_script(choice.script), dict[AskedPlace, Model]()
        yield lambda place: known.setdefault(place, ScriptedRound(script, place))
        return
    if not settings.fork.model:
        raise ForkError("no model: give --model-name, or set fork.model (BRAID_FORK__MODEL)")
    shared = open_model(choice.kind, settings.fork.model, settings.fork.service())
    try:
        yield lambda _place: shared
    finally:
        await shared.close()


class _Kept(Log):
    """A log that stores what is appended, until it is read."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.facts: list[Fact] = []

    async def append(self, fact: Fact) -> None:
        """Add a fact."""
        await self._log.append(fact)
        self.facts.append(fact)


NOTHING = History(None, {}, False)


async def run_planned(
    planned: Sequence[PlannedRollout], log: ForkLog, model_for: ModelFor, options: RunOptions, settings: Settings, *,
    resume: bool, verify: bool, scripted: bool, done: Callable[[BranchDone], None], say: Say = quiet,
) -> int:  # fmt: skip
    """Run all rollouts, one after the other; with `verify` their verdicts go to the same log. Returns the number of
    verdicts.

    Raises ForkError if the log has a rollout of this name already, and ConfigError if no verdict would count.
    """
    key = verifier_key(settings) if verify else None
    if key is not None:
        require_trust(settings, key, COMPLIANCE, "verifier.signing_key")
    kept, verdicts = _Kept(log), 0
    runner = ComplianceRunner(kept, model_for, options, _no_clock if scripted else _clock)
    for number, each in enumerate(planned):
        say("running", number / len(planned))
        rollout_id = each.opened.rollout_id
        history = await log.history(rollout_id) if resume or number == 0 else NOTHING
        if not resume and history.opened is not None:
            raise ForkError(f"{log.place} has a rollout {rollout_id} already: choose another --id, or --resume it")
        if history.opened is not None and history.opened.spec != each.opened.spec:
            raise ForkError(f"{rollout_id}: the task file has another spec than the run that is to be resumed")
        if history.settled:
            continue
        await runner.run(each, history, done)
        whole = _joined(history, read_history(kept.facts, rollout_id))
        kept.facts.clear()
        if key is not None:
            for verdict in missing_verdicts(whole, rollout_id, each.opened.spec or "{}"):
                await log.append(sign_verdict(verdict, key))
                verdicts += 1
    return verdicts


def _joined(one: History, other: History) -> History:
    """Return two parts of a history as one."""
    attempts = dict(one.attempts)
    for job, each in other.attempts.items():
        before = attempts.get(job)
        attempts[job] = each if before is None else each._replace(events=before.events | each.events)
    return History(one.opened or other.opened, attempts, one.settled or other.settled, one.verdicts + other.verdicts)


def missing_verdicts(history: History, rollout_id: str, spec: str) -> Iterable[CheckVerdict]:
    """Yield the verdicts of finished branches that the history does not have."""
    known = {verdict.verdict_id for verdict in history.verdicts}
    for job in counting_ends(history):
        attempt = history.attempts[job]
        if attempt.status in UNDECIDED_ENDS:
            continue
        events = [attempt.events[seq] for seq in sorted(attempt.events)]
        verdict = compliance_verdict(Place(rollout_id, *job), spec, events)
        if verdict.verdict_id not in known:
            yield verdict


def _clock() -> int:
    return time.time_ns() // 1_000_000


def _no_clock() -> int:
    return NO_CLOCK
