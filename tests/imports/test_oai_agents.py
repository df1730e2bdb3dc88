"""Traces of the OpenAI Agents SDK."""

import json
import random
from pathlib import Path
from typing import Any

from agents.importers.traces.rollout_book import Grouping
from tests.conformance import conformance
from tests.conftest import Braid
from tests.imports.exact_rows import rows_of
from tests.imports.importing import Read, read_traces
from tests.imports.told import heard


def sample() -> Path:
    return conformance("imports", "oai-agents", "traces.jsonl")


def span(
    span_id: str, kind: str, parent: str | None = None, at: int = 0, error: Any = None, **data: Any
) -> dict[str, Any]:
    return {
        "object": "trace.span", "id": span_id, "trace_id": "t", "parent_id": parent, "started_at": f"2026-01-01T00:00:{at:02}+00:00",
        "ended_at": f"2026-01-01T00:00:{at + 1:02}+00:00", "error": error, "span_data": {"type": kind, **data},
    }  # fmt: skip


def read_spans(folder: Path, *values: Any) -> Read:
    file = folder / "traces.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return read_traces("oai-agents", file)


def test_the_order_of_spans_changes_nothing(tmp_path: Path) -> None:
    lines = sample().read_text().splitlines(keepends=True)
    found = set()
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        (tmp_path / "traces.jsonl").write_text("".join(lines))
        found.add(read_traces("oai-agents", tmp_path / "traces.jsonl").text)
    assert found == {read_traces("oai-agents", sample()).text}


def test_traces_of_one_task_are_branches() -> None:
    read = read_traces("oai-agents", sample(), grouping=Grouping(group_by="metadata.task"))
    assert (read.found.rollouts, read.found.branches) == (1, 4)


def test_only_runs_with_recorded_messages_and_sound_arguments_become_rows(tmp_path: Path, braid: Braid) -> None:
    """One chat run is a row; Responses spans hold no text, one run has broken arguments, one failed."""
    rows = rows_of(read_traces("oai-agents", sample()), tmp_path, braid)
    assert [row["fidelity"] for row in rows.sft] == ["exact"]
    reasons = sorted(row["reasons"][0] for row in rows.rejected if row["kind"] == "sft")
    assert reasons == ["malformed_arguments", "not_passing", "not_representable"]


def test_a_batch_of_the_exporter_is_read(tmp_path: Path) -> None:
    objects = [json.loads(line) for line in sample().read_text().splitlines()]
    assert read_spans(tmp_path, {"data": objects}).found.branches == 4


def test_an_agent_that_takes_over_is_named_and_the_handoff_said(tmp_path: Path) -> None:
    sent = [{"role": "system", "content": "Triage."}, {"role": "user", "content": "Repair it."}]
    over = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "h", "function": {"name": "transfer_to_fixer", "arguments": "{}"}}],
    }
    taken = [
        {"role": "system", "content": "Fix."},
        sent[1],
        over,
        {"role": "tool", "tool_call_id": "h", "content": "{}"},
    ]
    done = {"role": "assistant", "content": "Done."}
    read = read_spans(
        tmp_path,
        {"object": "trace", "id": "t"},
        span("1", "agent", name="triage"),
        span("2", "generation", "1", 1, input=sent, output=[over]),
        span("3", "handoff", "1", 3, from_agent="triage", to_agent="fixer"),
        span("4", "agent", None, 4, name="fixer"),
        span("5", "generation", "4", 5, input=taken, output=[done]),
    )
    assert read.events("handoff") == [{"to": "fixer", "from": "triage"}]
    assert [call["agent"] for call in read.events("model_call")] == ["triage", "fixer"]
    assert [each["content"] for each in heard(line["event"] for line in read.of("event"))[1].sent[:2]] == [
        "Fix.",
        "Repair it.",
    ]
    assert len([each for each in read.events("message") if each["role"] == "user"]) == 1


def test_a_bad_object_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    good = span("1", "generation", None, 1, input="hi", output=[{"role": "assistant", "content": "hello"}])
    bad = [{"object": "trace.span", "id": "x"}, {"object": "thing"}, 7, span("2", "generation") | {"span_data": []}]
    read = read_spans(tmp_path, *bad, good, span("3", "agent", "3"))
    assert read.found.branches == 1
    assert read.rejected.count == 4
