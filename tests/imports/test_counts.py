"""Every sample of the conformance data has the counts that its facts state."""

import fnmatch
from pathlib import Path

import pytest

from agents.importers.formats.registry import FORMATS
from tests.conformance import conformance
from tests.imports.facts import count, facts
from tests.imports.importing import read_traces

SAMPLES = (
    "tau-bench/*.json", "claude-code/*.jsonl", "oai-agents/traces.jsonl",
    "tau2/results.json", "agent-harm/agentharm.json", "harbor/job-demo/", "atif/trajectory.json",
    "langsmith/runs.jsonl", "otel/gen_ai/spans.otlp.jsonl", "otel/openinference/spans.otlp.jsonl",
    "bfcl/", "mcp-atlas/outputs.csv", "mcp-atlas/scored_*.csv", "terminal-bench/demo-run/", "tool-sandbox/agent_.../",
    "ms-agent-framework/sessions.jsonl", "adk/sessions.jsonl", "adk/*.session.json", "a2a-task/tasks.jsonl", "a2a-task/stream.jsonl",
    "a2a-task/v1.jsonl",
    "codex/*.jsonl", "pi/linear.jsonl", "sts/*.jsonl",
)  # fmt: skip
"""Samples whose formats are read; the table's first column."""


def paths_of(sample: str) -> list[Path]:
    """The paths of a sample: a folder, or the files that match."""
    folder, _, pattern = sample.partition("/")
    if not pattern.endswith("/"):
        inner, _, pattern = pattern.rpartition("/")
        folder = f"{folder}/{inner}".rstrip("/")
    base = conformance("imports", *folder.split("/"))
    if not pattern or pattern.endswith("/"):
        found = [
            place for place in [base, *base.iterdir()] if fnmatch.fnmatch(f"{place.name}/", pattern.replace("...", "*"))
        ]
        return found[:1] if pattern else [base]
    return sorted(place for place in base.iterdir() if fnmatch.fnmatch(place.name, pattern))


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_has_the_counts_of_its_facts(sample: str) -> None:
    """Nothing lost, nothing doubled, nothing invented."""
    fact = facts()[sample]
    read = read_traces(sample.partition("/")[0], *paths_of(sample))
    counts, ends, tokens = count(read.lines)
    assert counts == fact.counts
    assert ends == fact.ends
    assert tokens == (fact.tokens or (0, 0))
    assert read.rejected.count == fact.rejected


@pytest.mark.parametrize("sample", SAMPLES)
def test_auto_recognises_a_sample(sample: str) -> None:
    """By its first bytes, and by no other format."""
    read = read_traces("auto", *paths_of(sample))
    assert set(read.found.formats.values()) == {sample.partition("/")[0]}


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_counts_of_check_are_those_of_the_lines(sample: str) -> None:
    """`--check` says what the lines will hold."""
    read = read_traces(sample.partition("/")[0], *paths_of(sample))
    counts, ends, tokens = count(read.lines)
    said = read.found.plain(0)
    assert {name: said[name] for name in counts} == counts
    assert said["ends"] == ends
    assert (said["tokens_in"], said["tokens_out"]) == tokens


def test_every_format_of_the_table_is_read() -> None:
    """The registry has each format once, by its name."""
    assert list(FORMATS) == [each.name for each in FORMATS.values()]
