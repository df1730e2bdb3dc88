"""`braid compliance-verifier`: verdicts on finished compliance runs, from their specs and texts on the log.

A process of its own with the verifier's role. A verdict's id does not depend on the outcome, so a killed verifier
continues where it stopped, without a lost or doubled verdict.
"""

import asyncio
from typing import Any

from agents.compliance.compliance_verdict import Place, compliance_verdict
from agents.fork.history import Job, read_history
from agents.verdicts.meaning import COMPLIANCE, UNDECIDED_ENDS
from schemas.branches import BranchRecord
from schemas.errors import DecodeError
from streams.cluster.config import Settings
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.topics import AGENT_EVENTS, CHECK_VERDICTS, LIFECYCLE
from streams.services.group_worker import Held, run_in_group
from streams.services.verdict_worker import VerdictWorker


class ComplianceVerifier(VerdictWorker):
    """Verifies the branches of its partitions whose opening has a spec. Raises ConfigError when no verdict would count."""

    def __init__(self, writer: FactWriter) -> None:
        super().__init__(writer, COMPLIANCE, (CHECK_VERDICTS,))
        self._settings = writer.settings

    async def do(self, held: Held, record: BranchRecord, __stored: Any) -> bool:
        """Write the verdict of a branch that is not in the log yet."""
        if record.status in UNDECIDED_ENDS or record.rollout_id in held.settled:
            return True
        async with self._reading:
            facts = await self._facts(record.rollout_id)
        history = read_history(facts, record.rollout_id)
        if history.opened is None or history.opened.spec is None:
            return True
        attempt = history.attempts.get(Job(record.branch_index, record.attempt))
        if attempt is None:
            return True
        events = [attempt.events[seq] for seq in sorted(attempt.events)]
        place = Place(record.rollout_id, record.branch_index, record.attempt)
        verdict = await asyncio.to_thread(compliance_verdict, place, history.opened.spec, events)
        if verdict.verdict_id in held.written:
            return True
        if held.lost or self.stopping.is_set():
            return False
        await self._say(held, verdict)
        return True

    async def _facts(self, rollout_id: str) -> list[Any]:
        facts: list[Any] = []
        async with KafkaReader(self._settings) as kafka:
            async for placed in kafka.records([LIFECYCLE, AGENT_EVENTS], rollout_id=rollout_id):
                try:
                    facts.append(await kafka.decode(placed))
                except DecodeError:
                    continue  # `braid dead-letters list` shows it
        return facts


async def run_compliance_verifier(settings: Settings, *, stop: asyncio.Event | None = None) -> None:
    """Run a compliance verifier until a signal (or `stop`) ends it."""
    async with FactWriter(settings, "compliance-verifier") as writer:
        await run_in_group(ComplianceVerifier(writer), stop)
