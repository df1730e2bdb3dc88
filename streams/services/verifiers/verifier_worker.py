"""A verifier: takes branches as they end, looks at the files they left, writes what it saw.

A process of its own with the verifier's role; agents cannot reach it, its sandboxes or its tasks. At most `concurrency` branches
are looked at at once. A verdict's id says who looked at what: one that is in the log is not made again, so a verifier that was
killed goes on where it was, without a lost or doubled verdict.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from agents.fork.pool import KernelPool
from agents.fork.sandbox import Sandbox
from agents.fork.subject import Subject, about_of
from agents.fork.task import Task
from agents.verdicts.meaning import CURRENT, UNDECIDED_ENDS, Verdict, kind_of, meaning
from agents.workspace.files import File
from agents.workspace.snapshot import SnapshotError
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.branches import BranchRecord
from streams.log.kafka_writer import FactWriter
from streams.log.topics import BRANCHES, CLOSURES, Topic
from streams.services.group_worker import GroupWorker, Held, Role
from streams.services.verifiers.tasks import Openings, Tasks

LOOK_BACK_MS = 25 * 3_600_000
"""A rollout is open for a day at most: its opening and its verdicts are no older than this before a branch's end."""

log = structlog.get_logger()


class Branch(NamedTuple):
    """A branch to look at: the pristine task, and the files that it left."""

    task: Task
    files: dict[str, File]
    subject: Subject


class Untestable(NamedTuple):
    """A branch of ours that cannot be looked at, and why."""

    why: str
    subject: Subject


class Verifier(GroupWorker):
    """Looks at the branches of its partitions."""

    def __init__(
        self,
        writer: FactWriter,
        pool: KernelPool[Sandbox],
        store: SnapshotStore,
        kind: str,
        verdicts: tuple[Topic, ...],
    ) -> None:
        settings = writer.settings
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
        self.pool = pool
        self.produced_by = f"braid-{kind}-verifier"
        self._store = store
        self._tasks = Tasks(settings.verifier.tasks)
        self._openings = Openings(settings, LOOK_BACK_MS)
        self._reading = asyncio.Lock()
        self._slots = asyncio.Semaphore(settings.verifier.concurrency)

    @abstractmethod
    def kinds(self, task: Task) -> Sequence[str]:
        """The kinds of verdicts that it gives for a task; none when the task does not concern it."""

    @abstractmethod
    async def verdicts(self, branch: Branch, held: Held) -> Sequence[Verdict]:
        """Look at a branch."""

    @abstractmethod
    def untestable(self, branch: Untestable) -> Verdict:
        """The verdict on a branch that cannot be looked at: unknown, with the reason."""

    async def do(self, held: Held, record: BranchRecord, at: int) -> bool:
        """All verdicts about a branch that are not in the log yet."""
        if record.status in UNDECIDED_ENDS or record.rollout_id in held.settled:
            return True  # nothing that a verifier says counts for these
        async with self._slots:
            if record.rollout_id in held.settled:
                return True  # while it waited for its turn
            branch = await self._branch(record, at)
            if branch is None or (isinstance(branch, Branch) and self._is_done(branch, held)):
                return True
            if held.lost or self.stopping.is_set():
                return False
            said = [self.untestable(branch)] if isinstance(branch, Untestable) else await self.verdicts(branch, held)
            for verdict in said:
                await self.say(held, verdict)
        return True

    async def say(self, held: Held, verdict: Verdict) -> None:
        """Write a verdict, unless it is in the log."""
        if verdict.verdict_id in held.written:
            return
        await self.write(verdict)
        held.written.add(verdict.verdict_id)
        log.info(
            "verdict",
            rollout=verdict.rollout_id,
            branch=verdict.branch_index,
            attempt=verdict.attempt,
            kind=kind_of(verdict),
            outcome=meaning(verdict, CURRENT).outcome,
        )

    def _is_done(self, branch: Branch, held: Held) -> bool:
        return held.written.issuperset(branch.subject.verdict_id(kind) for kind in self.kinds(branch.task))

    async def _branch(self, record: BranchRecord, at: int) -> Branch | Untestable | None:
        async with self._reading:  # one connection at a time is enough
            origin = await self._openings.origin(record.rollout_id, at)
        if origin is None:
            return None
        kept = record.workspace
        about = about_of(origin.digest, kept.digest if kept is not None else "")
        subject = Subject(record.rollout_id, record.branch_index, record.attempt, self.produced_by, about)
        task = await asyncio.to_thread(self._tasks.find, origin)
        if isinstance(task, str):
            return Untestable(task, subject)
        if not self.kinds(task):
            return None
        if kept is None:
            return Untestable("the branch left no snapshot of its workspace", subject)
        try:
            return Branch(task, await asyncio.to_thread(self._store.load, kept), subject)
        except SnapshotError as error:
            return Untestable(f"snapshot: {error}", subject)
