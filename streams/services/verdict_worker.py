"""A worker of a verifier group: reads branches as they end, and writes signed verdicts about them.

Guarantees: a verdict that is in the log and counts is not written again; one that no trusted key has signed is no reason to skip
the branch.
"""

import asyncio

import structlog

from agents.trust.trusted_keys import untrusted
from agents.trust.verdict_signature import sign_verdict
from agents.verdicts.meaning import CURRENT, Verdict, kind_of, meaning
from schemas.base import Record
from streams.cluster.signing_keys import require_trust, trusted_verifiers, verifier_key
from streams.log.kafka_writer import FactWriter
from streams.log.topics import BRANCHES, CLOSURES, Topic
from streams.services.group_worker import GroupWorker, Held, Role

LOOK_BACK_MS = 25 * 3_600_000
"""A rollout is open for a day at most: its opening and its verdicts are no older than this before a branch's end."""

log = structlog.get_logger()


class VerdictWorker(GroupWorker):
    """Verifies the branches of its partitions. Raises ConfigError if none of its verdicts would count."""

    def __init__(self, writer: FactWriter, kind: str, verdicts: tuple[Topic, ...]) -> None:
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
        self._key = verifier_key(settings)
        self._trusted = trusted_verifiers(settings)
        require_trust(settings, self._key, kind, "verifier.signing_key")
        self._reading = asyncio.Lock()
        """Held while the log is read: one connection at a time is enough."""

    def is_written(self, found: Record) -> bool:
        """Whether a verdict of the log counts: the live worker makes a dead letter of any other."""
        return not isinstance(found, Verdict) or self._trusted is None or untrusted(found, self._trusted) is None

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
