"""Rollouts for the formats, made by the product itself: lines are folded, settled, closed and emitted."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from agents.facts.fact import Fact, rollout_of
from agents.formats import FORMATS
from agents.formats.shape import Group, Left, Row
from agents.importers.lines import LineReader
from agents.importers.slices import Slicer
from agents.rollouts.closure import close_now
from agents.rollouts.emission import emit
from agents.rollouts.policy import ClosingPolicy
from agents.rollouts.rollout import Rollout
from agents.rollouts.settlement import settle_now
from schemas.closures import Closure
from schemas.emission import EmissionConfig
from schemas.training import DpoRecord, PpoRecord, SftRecord
from schemas.verdicts import BuildVerdict

Line = dict[str, Any]

TOOLS = [{"name": "write_file", "description": "Write.", "input_schema": {"type": "object", "properties": {}}}, "shell"]

SHAPES: tuple[dict[str, Any], ...] = (
    {"path": "a.py", "lines": [1, 2, {"deep": None}]},
    {"path": {"dir": "src", "name": "b.py"}, "mode": 0o644},
    {"path": None, "force": True, "ratio": 0.5, "text": 'ünï "quoted"\n'},
)
"""Arguments of one tool, each of another shape."""

ELSEWHERE = ("dsse", "tokens-parquet", "compliance-eval")
"""Formats that need a key, token ids or constraints: these rollouts have none."""


def opening(rollout_id: str, branches: int, **more: Any) -> Line:
    return {
        "type": "rollout", "rollout_id": rollout_id, "task": f"Do the thing of {rollout_id}", "branches": branches,
        "required": ["build"], "system_prompt": "Be brief.", "tools": TOOLS, **more,
    }  # fmt: skip


def branch(
    rollout_id: str, index: int, answer: str | None, *, passes: bool | None, calls: tuple[Any, ...] = ()
) -> list[Line]:
    """A branch that calls a tool for each of `calls` (two at once where one is a pair), and answers."""
    events: list[tuple[str, str, dict[str, Any]]] = [
        ("text", "run_start", {"task": "x", "agentConfig": {"model": "m1"}})
    ]
    for step, call in enumerate(calls):
        together = call if isinstance(call, tuple) else (call,)
        ids = [f"c{index}-{step}-{number}" for number in range(len(together))]
        for call_id, args in zip(ids, together, strict=True):
            data = {"toolName": "write_file", "args": args, "callId": call_id, "batchId": f"b{step}", "stepIndex": step}
            events.append(("tool", "tool_call", data))
        events += [
            ("tool", "tool_result", {"toolName": "write_file", "callId": each, "output": f"did {each[3:]}"})
            for each in ids
        ]
    events.append(
        ("text", "error", {"error": "gave up"}) if answer is None else ("text", "final_answer", {"answer": answer})
    )
    lines: list[Line] = [
        {
            "type": "event", "rollout_id": rollout_id, "branch_index": index, "seq": seq,
            "event": {"channel": channel, "event": kind, "data": data, "timestamp_ms": 1_768_467_600_000 + seq},
        }
        for seq, (channel, kind, data) in enumerate(events)
    ]  # fmt: skip
    if passes is not None:
        status = {"status": "success", "exit_code": 0} if passes else {"status": "failure", "exit_code": 1}
        lines.append({"type": "build", "rollout_id": rollout_id, "branch_index": index, **status})
    return lines


def mixed(rollout_id: str = "r1", **more: Any) -> list[Line]:
    """Two branches pass and fail with different answers after different calls; a third fails with the answer of the first."""
    return [
        opening(rollout_id, 3, **more),
        *branch(rollout_id, 0, "Done.", passes=True, calls=(SHAPES[0], (SHAPES[1], SHAPES[2]))),
        *branch(rollout_id, 1, "I tried.", passes=False, calls=(SHAPES[0],)),
        *branch(rollout_id, 2, "Done.", passes=False, calls=(SHAPES[2],)),
    ]


def encoded(lines: list[Line]) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def group_of(
    lines: list[Line], split: str = "train", *, in_order: bool = True, config: EmissionConfig | None = None
) -> Group:
    """The whole rollout in lines of one rollout; `in_order` says that all of them count."""
    reader, slicer = LineReader(), Slicer()
    facts = [ready for line in lines for fact in reader.read(orjson.dumps(line)) for ready in slicer.add(fact)]
    return group_of_facts([*facts, *slicer.flush()], split, in_order=in_order, config=config)


def group_of_facts(
    facts: Sequence[Fact], split: str = "train", *, passes: Iterable[int] = (), in_order: bool = True,
    config: EmissionConfig | None = None,
) -> Group:  # fmt: skip
    """The whole rollout in its facts; the build of branches in `passes` succeeds."""
    rollout = Rollout(rollout_of(facts[0]))
    builds = [
        BuildVerdict(
            rollout_id=rollout.rollout_id, branch_index=index, verdict_id=f"v{index}", status="success", exit_code=0
        )
        for index in passes
    ]
    for offset, fact in enumerate([*facts, *builds]):
        complaints = rollout.add(fact, 1_768_467_600_000, ("facts", 0, offset))
        assert not complaints or not in_order
    settled = Closure(settled=settle_now(rollout, config or EmissionConfig(), ClosingPolicy()))
    rollout.add(settled, 1_768_467_600_000, ("closures", 0, 0))
    rollout.add(Closure(closed=close_now(rollout)), 1_768_467_600_000, ("closures", 0, 1))
    made = emit(rollout)
    return Group(
        made.ranking,
        split,
        tuple(row for row in made.rows if isinstance(row, SftRecord)),
        tuple(row for row in made.rows if isinstance(row, DpoRecord)),
        tuple(row for row in made.rows if isinstance(row, PpoRecord)),
        made.rejected,
        made.branches,
        evidence=dict(enumerate(made.evidence[:-1])),
        chain=made.evidence,
    )


def rows(name: str, group: Group, part: str = "") -> list[dict[str, Any]]:
    return [made.value for made in FORMATS[name].make(group) if isinstance(made, Row) and made.part == part]


def left(name: str, group: Group) -> list[str]:
    return [made.reason for made in FORMATS[name].make(group) if isinstance(made, Left)]
