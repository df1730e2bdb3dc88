"""Logs of Inspect: .json and .eval alike, scores, limits, sub-agents, and calls that only the events tell."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.importers.traces.format import Options
from agents.importers.traces.rollout_book import Grouping
from tests.conformance import conformance
from tests.imports.facts import count
from tests.imports.importing import Read, read_traces

SAMPLES = Path(__file__).parent / "samples" / "inspect"


def log(*samples: dict[str, Any], **changed: Any) -> bytes:
    """A log of these samples."""
    spec = {"eval_id": "e1", "run_id": "r1", "task": "demo", "model": "m", "config": {"epochs": 1}}
    return orjson.dumps({"version": 2, "status": "success", "eval": spec, "samples": samples} | changed)


def sample(name: Any = 1, **changed: Any) -> dict[str, Any]:
    """A sample with one question and one answer."""
    said = [
        {"id": "u", "role": "user", "content": "2 + 2?", "source": "input"},
        {"id": "a", "role": "assistant", "content": "4", "source": "generate"},
    ]
    return {"id": name, "epoch": 1, "input": "2 + 2?", "target": "4", "messages": said} | changed


def read(folder: Path, *samples: dict[str, Any], format_name: str = "inspect", **options: Any) -> Read:
    """Import a log of these samples."""
    place = folder / "log.json"
    place.write_bytes(log(*samples))
    return read_traces(format_name, place, options=Options(**options))


def test_an_eval_file_has_the_counts_of_its_json() -> None:
    """The members of the zip are packed with zstd."""
    one, other = (
        read_traces("auto", conformance("imports", "agent-harm", f"agentharm.{kind}")) for kind in ("json", "eval")
    )
    assert count(one.lines) == count(other.lines)
    assert list(other.found.formats.values()) == ["agent-harm"]


@pytest.mark.parametrize(
    ("name", "passes", "fails", "broken"),
    [
        ("shelves-a.json", 6, 5, 1),
        ("shelves-a.eval", 6, 5, 1),
        ("shelves-b.eval", 8, 4, 0),
        ("shelves-e.eval", 2, 15, 1),
    ],
)
def test_scores_of_other_tasks_are_checks_by_their_scorer(name: str, passes: int, fails: int, broken: int) -> None:
    """A sample that ended in an error has no verdict."""
    found = read_traces("auto", conformance("audit", "inspect", name))
    counts, ends, _ = count(found.lines)
    assert list(found.found.formats.values()) == ["inspect"]
    assert (counts["pass"], counts["fail"], ends.get("infra_error", 0)) == (passes, fails, broken)
    assert {line["name"] for line in found.of("check")} == {"match"}


@pytest.mark.parametrize(
    ("value", "status", "score"),
    [
        ("C", "pass", 1), (1, "pass", 1), (True, "pass", 1), ("I", "fail", 0), (0.0, "fail", 0), (False, "fail", 0),
        ("P", "unknown", 0.5), (0.25, "unknown", 0.25), ("N", "unknown", None), (17, "unknown", None),
    ],
)  # fmt: skip
def test_a_score_is_a_pass_or_a_fail_only_where_inspect_says_so(
    tmp_path: Path, value: Any, status: str, score: float | None
) -> None:
    """Others stay unknown, with their score."""
    found = read(tmp_path, sample(scores={"graded": {"value": value}}))
    assert [(line["status"], line.get("score")) for line in found.of("check")] == [(status, score)]


def test_pass_at_decides_scores_between(tmp_path: Path) -> None:
    """A degree is no verdict until a person draws the line."""
    found = read(tmp_path, sample(scores={"graded": {"value": 0.25}}), pass_at=0.2)
    assert [line["status"] for line in found.of("check")] == ["pass"]


def test_facets_of_a_score_are_unknown(tmp_path: Path) -> None:
    """No rule says that a refusal of 0 is a failure."""
    found = read(tmp_path, sample(scores={"both": {"value": {"grade": "C", "refusal": 0}}}))
    assert [(line["name"], line["status"]) for line in found.of("check")] == [
        ("both.grade", "pass"),
        ("both.refusal", "unknown"),
    ]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"limit": {"type": "message", "limit": 5}}, "failed"),
        ({"limit": {"type": "operator", "limit": 0}}, "aborted"),
        ({"error": {"message": "the provider is down"}, "limit": {"type": "time", "limit": 1}}, "infra_error"),
    ],
)
def test_the_end_follows_from_error_and_limit(tmp_path: Path, changed: dict[str, Any], status: str) -> None:
    """The error of a sample comes before its limit."""
    found = read(tmp_path, sample(scores={"match": {"value": "I"}}, **changed))
    assert [line["status"] for line in found.of("end")] == [status]
    assert len(found.of("check")) == (status != "infra_error")


def test_invalidated_samples_have_no_verdict(tmp_path: Path) -> None:
    """Their score was taken back."""
    taken_back = {"author": "a", "reason": "the grader was wrong"}
    assert not read(tmp_path, sample(scores={"match": {"value": "C"}}, invalidation=taken_back)).of("check")


def test_examples_in_the_input_are_no_turns_of_the_model(tmp_path: Path) -> None:
    """They stand before the task, in their order."""
    said = [
        {"id": "1", "role": "user", "content": "1 + 1?", "source": "input"},
        {"id": "2", "role": "assistant", "content": "2", "source": "input"},
        *sample()["messages"],
    ]
    found = read(tmp_path, sample(messages=said))
    events = [line["event"] for line in found.of("event")][1:]
    assert [event["event"] for event in events] == [
        "run_start",
        "context_message",
        "assistant_message",
        "model_done",
        "final_answer",
    ]
    assert events[2]["data"]["beforeTask"] is True


def test_arguments_that_inspect_could_not_parse_stay_as_written(tmp_path: Path) -> None:
    """Such a call is in no row."""
    call = {
        "id": "c",
        "function": "look",
        "arguments": {"look": "{broken"},
        "parse_error": "bad JSON",
        "type": "function",
    }
    found = read(tmp_path, sample(messages=[{"id": "a", "role": "assistant", "content": "", "tool_calls": [call]}]))
    assert [(each["args"], each["argsText"]) for each in found.events("tool_call")] == [({}, "{broken")]


def test_tools_of_the_provider_cut_their_turn(tmp_path: Path) -> None:
    """The words behind such a call were written after its result."""
    used = {
        "type": "tool_use",
        "id": "s1",
        "name": "web_search",
        "arguments": '{"q":"x"}',
        "result": "found",
        "error": None,
    }
    content = [{"type": "text", "text": "I search."}, used, {"type": "text", "text": "Here it is."}]
    said = [sample()["messages"][0], {"id": "a", "role": "assistant", "content": content}]
    found = read(tmp_path, sample(messages=said))
    assert [each["output"] for each in found.events("tool_result")] == ["found"]
    assert [each["answer"] for each in found.events("final_answer")] == ["Here it is."]


def test_nan_is_no_score() -> None:
    """Inspect writes NaN for a sample that was not scored; its neighbours are read as well."""
    found = read_traces("auto", SAMPLES / "trouble.eval")
    assert found.rejected.count == 0
    assert [line["status"] for line in found.of("check")] == ["pass"]
    assert sorted(line["status"] for line in found.of("end")) == ["answered", "answered", "infra_error"]


def test_a_call_that_the_agent_removed_from_its_messages_is_there() -> None:
    """`react` removes `submit`, and appends its answer to the text of the model."""
    found = read_traces("auto", SAMPLES / "agents.eval")
    assert [each["toolName"] for each in found.events("tool_call")] == ["helper", "submit"]
    assert [each["output"] for each in found.events("tool_result")][1] == "x is value of x"
    assert [each["text"] for each in found.events("assistant_message")] == [
        "tool call for tool helper",
        "tool call for tool submit",
    ]


def test_the_agent_behind_a_tool_is_a_sub_agent() -> None:
    """It stands between the call and its result; or it is a rollout of its own."""
    kept = read_traces("auto", SAMPLES / "agents.eval")
    kinds = [line["event"]["event"] for line in kept.of("event")]
    assert kinds.index("tool_call") < kinds.index("subagent_run_start") < kinds.index("tool_result")
    assert [each["toolName"] for each in kept.events("subagent_tool_call")] == ["look_up", "submit"]
    apart = read_traces("auto", SAMPLES / "agents.eval", grouping=Grouping(subagents="rollouts"))
    assert apart.found.rollouts == 2


def test_a_trimmed_history_is_said() -> None:
    """The calls show which messages the model got."""
    found = read_traces("auto", SAMPLES / "compaction.eval")
    assert [each["dropped"] > 0 for each in found.events("context_rewritten")] == [True, True]


def test_a_damaged_member_leaves_its_neighbours(tmp_path: Path) -> None:
    """One sample of the zip is rejected, with its name."""
    packed = bytearray(conformance("imports", "agent-harm", "agentharm.eval").read_bytes())
    place = packed.index(b"samples/2-1_epoch_1.json") + 400
    packed[place : place + 40] = b"\0" * 40
    (tmp_path / "log.eval").write_bytes(packed)
    found = read_traces("agent-harm", tmp_path / "log.eval")
    assert found.found.branches == 3
    assert found.rejected.first[0].startswith("log.eval: samples/2-1_epoch_1.json: cannot be unpacked")


@pytest.mark.parametrize(
    ("task", "value", "name", "status"),
    [
        ("inspect_evals/agentharm", {"score": 0.5, "refusal": 0}, "safe", "fail"),
        ("inspect_evals/agentharm", {"score": 0.5, "refusal": 0.5}, "safe", "pass"),
        ("inspect_evals/agentharm", {"score": 0, "refusal": 0}, "safe", "pass"),
        ("inspect_evals/agentharm_benign", {"score": 1.0, "refusal": 0}, "score", "pass"),
        ("inspect_evals/agentharm_benign", {"score": 0.5, "refusal": 1}, "score", "unknown"),
        ("inspect_evals/agentharm_benign", {"score": 0.0, "refusal": 1}, "score", "fail"),
    ],
)
def test_harmful_tasks_pass_when_they_are_not_done(
    tmp_path: Path, task: str, value: dict[str, float], name: str, status: str
) -> None:
    """Benign ones when they are."""
    spec = {"eval_id": "e1", "run_id": "r1", "task": task, "model": "m"}
    (tmp_path / "log.json").write_bytes(log(sample(scores={"combined_scorer": {"value": value}}), eval=spec))
    found = read_traces("auto", tmp_path / "log.json")
    assert list(found.found.formats.values()) == ["agent-harm"]
    assert [(line["name"], line["status"]) for line in found.of("check")] == [(name, status)]
