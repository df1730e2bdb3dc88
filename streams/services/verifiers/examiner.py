"""The examination of one branch: reads its files, returns verdicts. The Kafka verifiers and `braid fork --verify` share
it.

An examiner gives verdicts of some kinds for tasks that concern it. A branch that cannot be examined is unknown, with
the reason: it has no snapshot, its snapshot was not taken from it, or its task is not here.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import ClassVar, NamedTuple

from agents.fork.pool import KernelPool
from agents.fork.sandbox import Sandbox
from agents.fork.subject import Subject, about_of
from agents.fork.task import Task
from agents.verdicts.meaning import Verdict
from agents.workspace.files import File
from agents.workspace.snapshot import SnapshotError, TakenOf
from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.events import Workspace

Announce = Callable[[Verdict], Awaitable[None]]
"""Called when an examination takes long."""


class Ended(NamedTuple):
    """An attempt that has ended."""

    place: TakenOf
    workspace: Workspace | None
    """The snapshot that it names."""


class Branch(NamedTuple):
    """A branch to examine: the original task, and the files of the branch."""

    task: Task
    files: dict[str, File]
    subject: Subject


class Untestable(NamedTuple):
    """A branch that cannot be examined, and why."""

    why: str
    subject: Subject


class Examiner(ABC):
    """Looks at branches."""

    kind: ClassVar[str]
    """build or visual: the distinctive part of its name."""

    def __init__(self, pool: KernelPool[Sandbox], store: SnapshotStore) -> None:
        self.pool = pool
        self._store = store

    @abstractmethod
    def kinds(self, task: Task) -> Sequence[str]:
        """The kinds of verdicts that it gives for a task; empty if the task needs none of them."""

    @abstractmethod
    async def look(self, branch: Branch, announce: Announce) -> Sequence[Verdict]:
        """Examine a branch."""

    @abstractmethod
    def untestable(self, branch: Untestable) -> Verdict:
        """The verdict on a branch that cannot be examined: unknown, with the reason."""

    def branch(self, ended: Ended, task: Task | str, task_digest: str) -> Branch | Untestable | None:
        """The branch to examine; None if its task needs no verdict of this examiner. `task` may be the reason why there
        is none.

        Reads the snapshot from disk.
        """
        kept = ended.workspace
        about = about_of(task_digest, kept.digest if kept is not None else "")
        subject = Subject(*ended.place, f"braid-{self.kind}-verifier", about)
        if isinstance(task, str):
            return Untestable(task, subject)
        if not self.kinds(task):
            return None
        if kept is None:
            return Untestable("the branch left no snapshot of its workspace", subject)
        try:
            return Branch(task, self._store.load(kept, ended.place), subject)
        except SnapshotError as error:
            return Untestable(f"snapshot: {error}", subject)

    def is_done(self, branch: Branch | Untestable, known: Container[str]) -> bool:
        """Whether all verdicts about a branch are among the known ones, by id."""
        if isinstance(branch, Untestable):
            return False
        return all(branch.subject.verdict_id(kind) in known for kind in self.kinds(branch.task))

    async def verdicts(self, branch: Branch | Untestable, announce: Announce) -> Sequence[Verdict]:
        """All verdicts about a branch."""
        return [self.untestable(branch)] if isinstance(branch, Untestable) else await self.look(branch, announce)
