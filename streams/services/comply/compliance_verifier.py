"""`braid compliance-verifier`: verdicts on finished compliance runs, from their specs and texts on the log.

A process of its own with the verifier's role. A verdict's id leaves the outcome out, so one that was killed goes on where it was,
without a lost or doubled verdict.
"""

import asyncio
from typing import Any

import structlog

from agents.compliance.compliance_verdict import Place, compliance_verdict
from agents.fork.history import Job, read_history
from agents.trust.trusted_keys import untrusted
from agents.trust.verdict_signature import sign_verdict
from agents.verdicts.meaning import COMPLIANCE, UNDECIDED_ENDS, Verdict
from schemas.base import Record
from schemas.branches import BranchRecord
from schemas.errors import DecodeError
from streams.cluster.config import Settings
from streams.cluster.signing_keys import require_trust, trusted_verifiers, verifier_key
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import FactWriter
from streams.log.topics import AGENT_EVENTS, BRANCHES, CHECK_VERDICTS, CLOSURES, LIFECYCLE
from streams.services.group_worker import GroupWorker, Held, Role, run_in_group

LOOK_BACK_MS = 25 * 3_600_000
"""A rollout is open for a day at most."""

log = structlog.get_logger()


class ComplianceVerifier(GroupWorker):
    """Verifies the branches of its partitions whose opening has a spec. Raises ConfigError when no verdict would count."""

    def __init__(self, writer: FactWriter) -> None:
        settings = writer.settings
        role = Role(
            name="compliance-verifier",
            topic=BRANCHES,
            known=(CHECK_VERDICTS, CLOSURES),
            group=settings.verifier_group(COMPLIANCE),
            slot=settings.verifier.slot,
            parallel=settings.verifier.concurrency,
            grace_s=settings.verifier.grace_s,
            look_back_ms=LOOK_BACK_MS,
        )
        super().__init__(role, writer)
        self._settings = settings
        self._key = verifier_key(settings)
        self._trusted = trusted_verifiers(settings)
        require_trust(settings, self._key, COMPLIANCE, "verifier.signing_key")
        self._reading = asyncio.Lock()

    def is_written(self, found: Record) -> bool:
        """Whether a verdict of the log counts: the live worker makes a dead letter of any other."""
        return not isinstance(found, Verdict) or self._trusted is None or untrusted(found, self._trusted) is None

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
        await self.write(sign_verdict(verdict, self._key))
        held.written.add(verdict.verdict_id)
        log.info(
            "verdict",
            rollout=place.rollout_id,
            branch=place.branch_index,
            attempt=place.attempt,
            outcome=verdict.status,
        )
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
