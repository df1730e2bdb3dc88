"""Compliance runs as `compliance-eval-record/v1`: one record for each branch, passing or not, with the trace of its repairs."""

from collections.abc import Iterator

from agents.formats.shape import Column, Format, Group, Left, Row, Speech
from schemas.compliance import eval_view


def _records(group: Group) -> Iterator[Row | Left]:
    for record in group.evals:
        category = group.barred(record.branch_index)
        yield Left(category) if category in ("quarantine", "reject") else Row(eval_view(record), (record,), "evals")


_COLUMNS: dict[str, Column] = {
    "schema_version": "text", "task_id": "text", "task_spec_hash": "text", "model": "text", "mode": "text", "violations": "json",
    "repair_trace": "json", "repair_rounds": "whole", "final_pass": "truth", "artifact": "text", "token_cost": "json",
    "latency_ms": "real", "trace_uri": "text", "error": "json",
}  # fmt: skip

FORMATS = (
    Format(
        "compliance-eval", "compliance-eval-record/v1: every compliance run with its repairs", frozenset({"evals"}), _records,
        {"evals": _COLUMNS},
        speech=Speech(reasoning=False),
    ),
)  # fmt: skip
