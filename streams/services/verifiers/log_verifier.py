"""Verdicts without a broker: the examiners of the verifiers examine branches as they end, and write their verdicts to
the same log.

For a file of lines, which no verifier follows. A verdict that is on the log and counts is not made again: a runner that was killed
between the end of a branch and its verdict completes it when it is resumed.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from agents.evidence.signing import SigningKey
from agents.fork.history import History, counting_ends
from agents.fork.log import Log
from agents.fork.runner import BranchResult
from agents.fork.task import Task
from agents.trust.trusted_keys import TrustedKeys, is_trusted
from agents.trust.verdict_signature import sign_verdict
from agents.verdicts.meaning import UNDECIDED_ENDS, Verdict
from agents.workspace.snapshot import TakenOf
from streams.cluster.config import Settings
from streams.cluster.signing_keys import require_trust, trusted_verifiers, verifier_key
from streams.services.fork.fork_setup import Fork
from streams.services.verifiers.build import build_examiner
from streams.services.verifiers.examiner import Ended, Examiner
from streams.services.verifiers.hacks import hack_examiner
from streams.services.verifiers.visual import visual_examiner

Told = Callable[[TakenOf, Sequence[Verdict]], None]
"""Takes the verdicts about an attempt that have just been written."""


class LogVerifier:
    """Looks at branches, and appends signed verdicts to a log."""

    def __init__(
        self, log: Log, examiners: Iterable[Examiner], concurrency: int, key: SigningKey, trusted: TrustedKeys | None = None
    ) -> None:  # fmt: skip
        self._log = log
        self._slots = asyncio.Semaphore(concurrency)
        self._examiners = tuple(examiners)
        self._key = key
        self._trusted = trusted
        self._known: set[str] = set()
        """Ids of the verdicts that are on the log and count."""

    def missing(self, history: History, rollout_id: str) -> list[Ended]:
        """Read the verdicts on the log; return the ended attempts that lack one."""
        said = (each for each in history.verdicts if self._trusted is None or is_trusted(each, self._trusted))
        self._known |= {verdict.verdict_id for verdict in said}
        ends = [(TakenOf(rollout_id, *job), history.attempts[job]) for job in counting_ends(history)]
        return [Ended(place, attempt.workspace) for place, attempt in ends if attempt.status not in UNDECIDED_ENDS]

    async def verify(self, task: Task, ended: Ended) -> list[Verdict]:
        """Append the verdicts about an attempt that are not on the log yet; returns them."""
        async with self._slots:
            return await self._verify(task, ended)

    async def _verify(self, task: Task, ended: Ended) -> list[Verdict]:
        written: list[Verdict] = []
        for examiner in self._examiners:
            branch = await asyncio.to_thread(examiner.branch, ended, task, task.digest)
            if branch is None or examiner.is_done(branch, self._known):
                continue
            for verdict in await examiner.verdicts(branch, _unannounced):
                if verdict.verdict_id not in self._known:
                    await self._log.append(sign_verdict(verdict, self._key))
                    self._known.add(verdict.verdict_id)
                    written.append(verdict)
        return written


async def run_verified(
    fork: Fork, task: Task, verifier: LogVerifier | None, told: Told = lambda _place, _verdicts: None
) -> AsyncGenerator[BranchResult, None]:
    """Run the branches of a fork, and yield each result when its branch has ended; `verifier` examines it while others
    still run.

    It also examines branches that had ended before. All verdicts are on the log when this is over; closed early, it
    stops.
    """
    rollout_id, looks = fork.runner.opened.rollout_id, list[asyncio.Task[None]]()

    async def look(ended: Ended) -> None:
        assert verifier is not None
        told(ended.place, await verifier.verify(task, ended))

    try:
        for ended in [] if verifier is None else verifier.missing(fork.history, rollout_id):
            looks.append(asyncio.create_task(look(ended)))
        async with aclosing(fork.runner.run(fork.jobs)) as running:
            async for result in running:
                if verifier is not None and result.workspace is not None:
                    place = TakenOf(rollout_id, result.branch_index, result.attempt)
                    looks.append(asyncio.create_task(look(Ended(place, result.workspace))))
                yield result
        for each in looks:
            await each
    finally:
        for each in looks:
            each.cancel()
        await asyncio.gather(*looks, return_exceptions=True)


async def _unannounced(_verdict: Verdict) -> None:
    """A file has no reader that waits for news."""


@asynccontextmanager
async def log_verifier(log: Log, settings: Settings, tasks: Iterable[Task]) -> AsyncIterator[LogVerifier]:
    """A verifier with everything that the verdicts of these tasks need: sandboxes, a judge, a browser.

    Raises ConfigError if none of its verdicts would count.
    """
    key = verifier_key(settings)
    require_trust(settings, key, None, "verifier.signing_key")
    async with AsyncExitStack() as stack:
        examiners: list[Examiner] = [await stack.enter_async_context(build_examiner(settings))]
        if settings.verifier.anti_manipulation:
            examiners.append(await stack.enter_async_context(hack_examiner(settings)))
        if any(task.braid.page is not None for task in tasks):
            examiners.append(await stack.enter_async_context(visual_examiner(settings)))
        wanted = settings.verifier.concurrency
        yield LogVerifier(log, examiners, wanted, key, trusted_verifiers(settings))
