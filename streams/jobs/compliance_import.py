"""Stored compliance records become lines that `braid run` and `braid ingest` read, with verdicts made anew."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from agents.compliance.compliance_verdict import Place, compliance_verdict
from agents.compliance.record_facts import facts_of
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
    """Yield the lines of all records, file by file; what is wrong with one is added to `bad`."""
    seeds: dict[tuple[str, str], str] = {}
    by_file: dict[str, dict[str, list[EvalView]]] = {}
    for place, label, record, seed in stored_records(files, bad, say):
        try:
            task_for(record, tasks)
        except TaskError as error:
            bad.append(f"{place}: {error}")
            continue
        group = by_file.setdefault(label, {}).setdefault(record.task_id, [])
        if any(each.mode == record.mode for each in group):
            bad.append(f"{place}: mode: the file has this task in the mode {record.mode} twice; the first one counts")
        else:
            group.append(record)
            seeds[label, record.task_id] = seed
    for label, groups in by_file.items():
        for task_id, records in groups.items():
            yield from _lines(label, tasks[task_id], records, key, seeds[label, task_id])


def _lines(label: str, task: Task, records: list[EvalView], key: SigningKey, seed: str) -> Iterator[bytes]:
    for fact in facts_of(label, task, records, seed):
        yield from (orjson.dumps(line) + b"\n" for line in lines_of(fact))
        if isinstance(fact, AgentEvents) and fact.status not in UNDECIDED_ENDS:
            place = Place(fact.rollout_id, fact.branch_index, fact.attempt)
            verdict = compliance_verdict(place, task.spec.text(), fact.events)
            yield from (orjson.dumps(line) + b"\n" for line in lines_of(sign_verdict(verdict, key)))
