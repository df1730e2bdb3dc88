"""A verifier: takes branches as they end, looks at the files they left, writes what it saw, signed.

A process of its own with the verifier's role; agents cannot reach it, its sandboxes or its tasks. At most `concurrency` branches
are looked at at once. A verdict's id says who looked at what: one that is in the log and counts is not made again, so a verifier
that was killed goes on where it was, without a lost or doubled verdict. A forged one under that id is no reason to skip
the look.
"""

import asyncio
from functools import partial
from typing import Any

import structlog

from agents.fork.task import Task
from agents.trust.trusted_keys import untrusted
from agents.trust.verdict_signature import sign_verdict
from agents.verdicts.meaning import CURRENT, UNDECIDED_ENDS, Verdict, kind_of, meaning
from agents.workspace.snapshot import TakenOf
from schemas.base import Record
from schemas.branches import BranchRecord
from streams.cluster.signing_keys import require_trust, trusted_verifiers, verifier_key
from streams.log.kafka_writer import FactWriter
from streams.log.topics import BRANCHES, CLOSURES, Topic
from streams.services.group_worker import GroupWorker, Held, Role
from streams.services.verifiers.examiner import Branch, Ended, Examiner, Untestable
from streams.services.verifiers.tasks import Openings, Tasks

LOOK_BACK_MS = 25 * 3_600_000
"""A rollout is open for a day at most: its opening and its verdicts are no older than this before a branch's end."""

log = structlog.get_logger()


class Verifier(GroupWorker):
    """Lets an examiner look at the branches of its partitions. Raises ConfigError when none of its verdicts would count."""

    def __init__(self, writer: FactWriter, examiner: Examiner, verdicts: tuple[Topic, ...]) -> None:
        settings, kind = writer.settings, examiner.kind
        role = Role(
            name=f"{kind}-verifier",
            topic=BRANCHES,
            known=(*verdicts, CLOSURES),
            group=settings.verifier_group(kind),
            slot=settings.verifier.slot,
            parallel=settings.verifier.concurrency,
            grace_s=settings.verifier.grace_s,
            look_back_ms=LOOK_BACK_MS,
        )
        super().__init__(role, writer)
        self._examiner = examiner
        self._key = verifier_key(settings)
        self._trusted = trusted_verifiers(settings)
        require_trust(settings, self._key, kind, "verifier.signing_key")
        self._tasks = Tasks(settings.verifier.tasks)
        self._openings = Openings(settings, LOOK_BACK_MS)
        self._reading = asyncio.Lock()
        self._slots = asyncio.Semaphore(settings.verifier.concurrency)

    def is_written(self, found: Record) -> bool:
        """Whether a verdict of the log counts: the live worker makes a dead letter of any other."""
        return not isinstance(found, Verdict) or self._trusted is None or untrusted(found, self._trusted) is None

    async def do(self, held: Held, record: BranchRecord, stored: Any) -> bool:
        """All verdicts about a branch that are not in the log yet."""
        if record.status in UNDECIDED_ENDS or record.rollout_id in held.settled:
            return True  # nothing that a verifier says counts for these
        async with self._slots:
            if record.rollout_id in held.settled:
                return True  # while it waited for its turn
            branch = await self._branch(record, stored.timestamp)
            if branch is None or self._examiner.is_done(branch, held.written):
                return True
            if held.lost or self.stopping.is_set():
                return False
            for verdict in await self._examiner.verdicts(branch, partial(self._say, held)):
                await self._say(held, verdict)
        return True

    async def _say(self, held: Held, verdict: Verdict) -> None:
        """Write a verdict, signed, unless it is in the log."""
        if verdict.verdict_id in held.written:
            return
        await self.write(sign_verdict(verdict, self._key))
        held.written.add(verdict.verdict_id)
        log.info(
            "verdict",
            rollout=verdict.rollout_id,
            branch=verdict.branch_index,
            attempt=verdict.attempt,
            kind=kind_of(verdict),
            outcome=meaning(verdict, CURRENT).outcome,
        )

    async def _branch(self, record: BranchRecord, at: int) -> Branch | Untestable | None:
        async with self._reading:  # one connection at a time is enough
            origin = await self._openings.origin(record.rollout_id, at)
        if origin is None:
            return None
        ended = Ended(TakenOf(record.rollout_id, record.branch_index, record.attempt), record.workspace)

        def find() -> Branch | Untestable | None:
            task: Task | str = self._tasks.find(origin)
            return self._examiner.branch(ended, task, origin.digest)

        return await asyncio.to_thread(find)
