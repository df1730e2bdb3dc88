"""A verifier: takes branches as they end, examines their files, writes signed verdicts.

A process of its own with the verifier's role; agents cannot reach it, its sandboxes or its tasks. At most `concurrency`
branches are examined at once. A verdict's id identifies the verifier and the examined files: one that is in the log and
counts is not made again, so a verifier that was killed continues where it stopped, without a lost or doubled verdict. A
forged verdict under that id does not prevent the examination.
"""

import asyncio
from functools import partial
from typing import Any

from agents.fork.task import Task
from agents.verdicts.meaning import UNDECIDED_ENDS
from agents.workspace.snapshot import TakenOf
from schemas.branches import BranchRecord
from streams.log.kafka_writer import FactWriter
from streams.log.topics import Topic
from streams.services.group_worker import Held
from streams.services.verdict_worker import LOOK_BACK_MS, VerdictWorker
from streams.services.verifiers.examiner import Branch, Ended, Examiner, Untestable
from streams.services.verifiers.tasks import Openings, Tasks


class Verifier(VerdictWorker):
    """Runs an examiner on the branches of its partitions. Raises ConfigError if none of its verdicts would count."""

    def __init__(self, writer: FactWriter, examiner: Examiner, verdicts: tuple[Topic, ...]) -> None:
        super().__init__(writer, examiner.kind, verdicts)
        settings = writer.settings
        self._examiner = examiner
        self._tasks = Tasks(settings.verifier.tasks)
        self._openings = Openings(settings, LOOK_BACK_MS)
        self._slots = asyncio.Semaphore(settings.verifier.concurrency)

    async def do(self, held: Held, record: BranchRecord, stored: Any) -> bool:
        """Make all verdicts about a branch that are not in the log yet."""
        if record.status in UNDECIDED_ENDS or record.rollout_id in held.settled:
            return True  # a verdict about these would not count
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

    async def _branch(self, record: BranchRecord, at: int) -> Branch | Untestable | None:
        async with self._reading:
            origin = await self._openings.origin(record.rollout_id, at)
        if origin is None:
            return None
        ended = Ended(TakenOf(record.rollout_id, record.branch_index, record.attempt), record.workspace)

        def find() -> Branch | Untestable | None:
            task: Task | str = self._tasks.find(origin)
            return self._examiner.branch(ended, task, origin.digest)

        return await asyncio.to_thread(find)
