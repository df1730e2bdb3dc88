"""Stored compliance records become lines that `braid run` and `braid ingest` read, with new verdicts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from agents.compliance.compliance_verdict import Place, compliance_verdict
from agents.compliance.record_facts import Produced, facts_of
from agents.compliance.stored_record import task_for
from agents.compliance.task_file import Task, TaskError
from agents.evidence.signing import SigningKey
from agents.importers.line_writer import lines_of
from agents.trust.verdict_signature import sign_verdict
from agents.verdicts.meaning import UNDECIDED_ENDS
from schemas.compliance import EvalView
from schemas.events import AgentEvents
from streams.jobs.compliance_lines import stored_records
from streams.log.progress import Say, quiet


def imported_lines(
    files: Sequence[Path], tasks: dict[str, Task], key: SigningKey, bad: list[str], say: Say = quiet
) -> Iterator[bytes]:
    """Yield the lines of all records, file by file; errors are added to `bad`."""
    by_file: dict[str, dict[tuple[str, str], list[EvalView]]] = {}
    for place, label, record, seed in stored_records(files, bad, say):
        try:
            task_for(record, tasks)
        except TaskError as error:
            bad.append(f"{place}: {error}")
            continue
        group = by_file.setdefault(label, {}).setdefault((record.task_id, seed), [])
        if any(each.mode == record.mode for each in group):
            bad.append(
                f"{place}: mode: the file has this task and seed in the mode {record.mode} twice; the first one counts"
            )
        else:
            group.append(record)
    for label, groups in by_file.items():
        several = len({seed for _, seed in groups}) > 1
        for (task_id, seed), records in groups.items():
            rollout_id = f"{label}/{task_id}" + (f"/s{seed}" if several else "")
            for fact in facts_of(rollout_id, label, tasks[task_id], records, seed):
                yield from _lines(fact, tasks[task_id], key)


def _lines(fact: Produced, task: Task, key: SigningKey) -> Iterator[bytes]:
    """Yield the lines of a fact, and of the verdict on a branch."""
    yield from (orjson.dumps(line) + b"\n" for line in lines_of(fact))
    if isinstance(fact, AgentEvents) and fact.status not in UNDECIDED_ENDS:
        place = Place(fact.rollout_id, fact.branch_index, fact.attempt)
        verdict = compliance_verdict(place, task.spec.text(), fact.events)
        yield from (orjson.dumps(line) + b"\n" for line in lines_of(sign_verdict(verdict, key)))
