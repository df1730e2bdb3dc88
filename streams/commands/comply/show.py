"""`braid comply show`: the rounds of a rollout's branches, with their differences and hints."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from streams.commands.console_output import print_json
from streams.commands.options import Json, LogFlags

if TYPE_CHECKING:
    from schemas.compliance import ComplianceEvalRecord
    from streams.cluster.config import Settings


def show(rollout: str, /, *, source: LogFlags = LogFlags(), json: Json = False) -> None:
    """Show the rounds of a closed compliance rollout: the changes of each, its verdict, and what was committed.

    Example: `braid comply show demo/train-plan/s42 --from-dir results`

    Parameters
    ----------
    rollout
        The rollout's id.
    """
    from streams.cluster.config import load
    from streams.log.reader import LookError

    records = asyncio.run(_records(rollout, source, load()))
    if not records:
        raise LookError(f"there is no closed compliance rollout {rollout}; `braid rollouts` lists all")
    if json:
        print_json({"rollout_id": rollout, "branches": [_view(each) for each in records]})
        return
    for each in records:
        _show(each)


def _view(record: "ComplianceEvalRecord") -> dict[str, Any]:
    from schemas.compliance import eval_view

    attempts = [each.model_dump(mode="json") for each in record.attempts]
    return eval_view(record) | {"status": record.status, "flags": record.flags, "attempts": attempts}


async def _records(rollout: str, source: LogFlags, settings: "Settings") -> "list[ComplianceEvalRecord]":
    from schemas.compliance import ComplianceEvalRecord
    from streams.log.kafka_reader import hush
    from streams.log.readers import reader_of
    from streams.log.topics import COMPLIANCE_EVALS

    hush()
    found: dict[int, ComplianceEvalRecord] = {}
    async with reader_of(settings, source.from_dir, unfinished=source.unfinished) as log:
        async for placed in log.records([COMPLIANCE_EVALS], rollout_id=rollout):
            record = await log.decode(placed)
            if isinstance(record, ComplianceEvalRecord):
                found[record.branch_index] = record
    return [found[index] for index in sorted(found)]


def _show(record: "ComplianceEvalRecord") -> None:
    import json
    from difflib import unified_diff

    from streams.log.terminal_text import visible

    flags = f" ({', '.join(record.flags)})" if record.flags else ""
    sys.stdout.write(f"branch {record.branch_index} {record.mode}: {record.status}{flags}, made by {record.made_by}\n")
    texts: dict[int, str] = {}
    for each in record.attempts:
        target = f" for {', '.join(each.target)}" if each.target else ""
        fate = "committed" if each.committed else f"not committed: {each.reason}"
        sys.stdout.write(visible(f"  round {each.round} {each.strategy}{target}: {each.status}, {fate}") + "\n")
        before = texts.get(each.base_round if each.base_round is not None else -1)
        lines = each.output.splitlines() if before is None else [
            line for line in unified_diff(before.splitlines(), each.output.splitlines(), lineterm="", n=1)
            if not line.startswith(("---", "+++"))
        ]  # fmt: skip
        for line in lines[:40]:
            sys.stdout.write(f"    {visible(line)}\n")
        if len(lines) > 40:
            sys.stdout.write(f"    [{len(lines) - 40} more lines]\n")
        for violation in json.loads(each.violations):
            sys.stdout.write(visible(f"    - {violation['constraint_id']}: {violation['hint']}") + "\n")
        texts[each.round] = each.output
