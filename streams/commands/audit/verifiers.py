"""`braid audit verifiers` and `braid audit tools`: audits over the facts of the log."""

import asyncio
import sys
from typing import TYPE_CHECKING

from streams.commands.console_output import print_json
from streams.commands.options import Json, LogFlags

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.audit.rollout_facts import RolloutFacts


def verifiers(*, source: LogFlags = LogFlags(), json: Json = False) -> None:
    """Audit the verifiers of the log: a check that never fails, a verdict that flips on the same files, answers that leak.

    Superseded verdicts count too. A verifier with fewer than 20 known branches has no strength. Exits with 1 when something
    is found.

    Example: `braid audit verifiers --from-dir results`
    """
    from agents.audit.verifier_audit import VerifierAudit

    audit = VerifierAudit()
    read_facts(source, audit.add)
    found = audit.plain()
    if json:
        print_json(found)
    else:
        from streams.views.audit_tables import verifier_page
        from streams.views.tables import show

        show(*verifier_page(found))
    if any(each["severity"] != "info" for verifier in found["verifiers"] for each in verifier["findings"]):
        sys.exit(1)


def tools(*, source: LogFlags = LogFlags(), json: Json = False) -> None:
    """Audit the tools that rollouts of the log were opened with: hidden characters, poisoned descriptions, rug pulls.

    Exits with 1 when something is found.

    Example: `braid audit tools --from-dir results`
    """
    from agents.audit.tool_audit import ToolAudit

    audit = ToolAudit()
    read_facts(source, audit.add)
    found = audit.plain()
    if json:
        print_json(found)
    else:
        from streams.views.audit_tables import tool_page
        from streams.views.tables import show

        show(*tool_page(found))
    if any(each["findings"] for each in found["tools"]):
        sys.exit(1)


def read_facts(source: LogFlags, take: "Callable[[RolloutFacts], None]") -> None:
    """Give every rollout of the log to an audit."""
    from agents.audit.rollout_facts import facts_of
    from streams.cluster.config import load
    from streams.jobs.audit.log_rollouts import log_rollouts
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.views.progress import progress

    settings = load()
    hush()

    async def read() -> None:
        with progress() as say:
            async with reader_of(settings, source.from_dir, unfinished=source.unfinished, say=say) as log:
                async for rollout in log_rollouts(log, say):
                    take(facts_of(rollout, settings.emission))

    asyncio.run(read())
