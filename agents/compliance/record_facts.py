"""Stored records as facts: one rollout per (file, task), one branch per mode, and the direct artifact as round 0 of
all branches.

A record's final_pass is only a claim: it is kept in the answer's event, and decides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.compliance.stored_record import BY_CODE
from agents.compliance.task_file import Task
from schemas.compliance import COMPLIANCE, COMPLIANCE_ATTEMPT, MODES, EvalView
from schemas.event_kinds import channel_of
from schemas.events import AgentEvent, AgentEvents, AgentInfo, BranchInfo
from schemas.jsontext import compact
from schemas.lifecycle import Lifecycle, RolloutOpened

Produced = Lifecycle | AgentEvents


def facts_of(rollout_id: str, label: str, task: Task, records: Sequence[EvalView], seed: str) -> Iterator[Produced]:
    """Yield the facts of one file's records for one task and seed."""
    ordered = sorted(records, key=lambda each: MODES.index(each.mode))
    yield Lifecycle(
        opened=RolloutOpened(
            rollout_id=rollout_id,
            task=task.prompt,
            branches=len(ordered),
            required=(COMPLIANCE,),
            labels={"run": label, "task_id": task.id, "seed": seed},
            spec=task.spec.text(),
        )
    )
    direct = next((each for each in ordered if each.mode == "direct"), None)
    for index, record in enumerate(ordered):
        yield _branch(rollout_id, index, record, direct, seed)


def _branch(rollout_id: str, index: int, record: EvalView, direct: EvalView | None, seed: str) -> AgentEvents:
    rounds = list(_rounds(record, direct))
    answer = {"answer": record.artifact, "claimed_pass": record.final_pass}
    told = [(COMPLIANCE_ATTEMPT, each) for each in rounds] + ([] if record.error else [("final_answer", answer)])
    events = tuple(
        AgentEvent(
            trace_id=f"{rollout_id}/b{index}/a0",
            channel=channel_of(kind),
            event=kind,
            data=compact(data),
            timestamp_ms=None,
        )
        for kind, data in told
    )
    return AgentEvents(
        rollout_id=rollout_id,
        branch_index=index,
        events=events,
        ended=True,
        last_seq=len(events) - 1,
        status="infra_error" if record.error else "answered",
        error=record.error.message if record.error else None,
        branch=BranchInfo(
            agent=AgentInfo(model=record.model), seed=int(seed) if seed.isdigit() and len(seed) < 16 else None
        ),
    )


def _rounds(record: EvalView, direct: EvalView | None) -> Iterator[dict[str, Any]]:
    """Yield the rounds whose text is known: the draft, and the answer if its text differs."""
    shared = direct is not None and (record is direct or record.violations == direct.violations)
    cost = record.token_cost
    if shared and direct is not None:
        usage = {"input": cost.prompt, "output": cost.generation} if cost else {}
        yield _round(record, 0, "direct", direct.artifact, "model", usage, latency=direct.latency_ms)
        if record.artifact == direct.artifact:
            return
    steps = record.repair_trace
    held = [step for step in steps if step.ok]
    by_code = bool(held) and all(step.strategy in BY_CODE for step in held)
    last = (held or list(steps))[-1:]
    number = max(last[0].round, 1) if last else 1
    strategy = "retry" if record.mode == "prompt_retry" else last[0].strategy if last else "full"
    target = list(last[0].violation_ids) if last else []
    usage = {"output": cost.repair} if cost and cost.repair is not None else {}
    yield _round(record, number, strategy, record.artifact, "edit" if by_code else "model", usage, target=target)


def _round(
    record: EvalView, number: int, strategy: str, output: str, made_by: str, usage: Mapping[str, int | None],
    target: Sequence[str] = (), latency: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    data = {
        "mode": record.mode,
        "round": number,
        "strategy": strategy,
        "target": list(target),
        "base_round": 0 if number else None,
        "output": output,
        "made_by": made_by,
        "committed": True,
        "usage": {name: count for name, count in usage.items() if count is not None},
        "latency_ms": None if latency is None else int(latency),
    }
    return {name: value for name, value in data.items() if value is not None}
