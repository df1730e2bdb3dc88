"""Traces that the producers' own packages wrote here (samples/README.md) have the counts of the runs that were made."""

from pathlib import Path

import pytest

from tests.conftest import Braid
from tests.imports.exact_rows import rows_of
from tests.imports.facts import count
from tests.imports.importing import read_traces

SAMPLES = Path(__file__).parent / "samples"

COUNTED = {
    #                                       calls results errors texts user final  ends
    "oai-agents/traces.jsonl": (6, 6, 1, 4, 1, 1, {"infra_error": 1, "aborted": 1, "failed": 1, "answered": 1}),
    "langsmith/batches.jsonl.gz": (5, 5, 1, 5, 1, 2, {"answered": 2, "infra_error": 1}),
    "otel/openai-v2.jsonl": (5, 5, 0, 5, 2, 1, {"answered": 1, "infra_error": 1}),
    "otel/openai-v2-logs.jsonl": (3, 3, 0, 2, 0, 1, {"answered": 1}),
    "otel/traceloop-anthropic.jsonl.gz": (5, 5, 0, 4, 0, 2, {"answered": 2, "infra_error": 1}),
    "otel/openinference-anthropic.jsonl.gz": (5, 5, 1, 4, 0, 2, {"answered": 2, "infra_error": 1}),
    "otel/openinference-langchain.jsonl.gz": (5, 5, 1, 2, 0, 0, {"infra_error": 2}),
    "otel/openinference-openai-agents.pb.gz": (6, 6, 2, 5, 1, 2, {"answered": 2, "infra_error": 1}),
    "otel/pydantic-ai.pb.gz": (
        6,
        9,
        2,
        6,
        1,
        3,
        {"answered": 3, "infra_error": 1},
    ),  # one run was given another's history
    "otel/two-instrumentations.pb.gz": (3, 3, 0, 3, 1, 1, {"answered": 1, "infra_error": 1}),
}


@pytest.mark.parametrize("sample", COUNTED)
def test_a_real_trace_has_the_counts_of_its_runs(sample: str) -> None:
    read = read_traces("auto", SAMPLES / sample)
    counts, ends, _ = count(read.lines)
    found = tuple(counts[name] for name in ("tool_call", "tool_result", "errors", "texts", "user", "final"))
    assert (*found, ends) == COUNTED[sample]
    assert not read.rejected.count


def test_rows_of_real_traces_are_exact(tmp_path: Path, braid: Braid) -> None:
    """Of an agent, of the agent that it calls as a tool, and of a run with several user turns."""
    read = read_traces("auto", *(SAMPLES / sample for sample in COUNTED))
    rows = rows_of(read, tmp_path, braid)
    assert {row["fidelity"] for row in rows.sft} == {"exact"}
    talks = [[(each["role"], each["content"]) for each in row["messages"]] for row in rows.sft]
    assert [("system", "You are the helper agent."), ("user", "what is 2+2?"), ("assistant", "four")] in talks
    assert any([role for role, _ in talk].count("user") == 3 for talk in talks)
