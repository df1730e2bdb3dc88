"""The sample: it is the same on every machine, well-formed, and shows every outcome that the product knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.lifecycle import RolloutOpened
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from tests.sample.rollout_script import RolloutScript, scripts
from tests.sample.sample_lines import BASE_MS, sample_lines, write_sample

Line = dict[str, Any]

REQUIRED_FIELDS = {
    "rollout": {"rollout_id", "task", "branches", "required", "deadline_ms", "system_prompt", "tools", "labels"},
    "event": {"rollout_id", "branch_index", "event"},
    "end": {"rollout_id", "branch_index", "status"},
    "build": {"rollout_id", "branch_index", "status"},
    "visual": {"rollout_id", "branch_index", "verdict"},
    "check": {"rollout_id", "branch_index", "name", "status"},
    "vote": {"rollout_id", "a", "b", "order", "sample", "preferred", "judge"},
}

ALL_ROLLOUTS = [
    "accessible-dialog",
    "cli-dry-run",
    "csv-parser",
    "debounce-hook",
    "flaky-date-test",
    "lru-cache",
    "markdown-table",
    "pagination-off-by-one",
    "pricing-page-layout",
    "rate-limiter",
    "signup-endpoint",
    "sql-migration",
]


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    """The sample as a reader gets it: through JSON."""
    return [orjson.loads(orjson.dumps(line)) for line in sample_lines()]


@pytest.fixture(scope="module")
def golden() -> list[Line]:
    text = (files("tests.sample") / "golden_trajectory.ndjson").read_bytes()
    return [orjson.loads(line) for line in text.splitlines()]


def of(lines: list[Line], kind: str, rollout_id: str | None = None, branch: int | None = None) -> list[Line]:
    return [
        line
        for line in lines
        if line["type"] == kind
        and rollout_id in (None, line["rollout_id"])
        and branch in (None, line.get("branch_index"))
    ]


def events(lines: list[Line], kind: str, rollout_id: str | None = None) -> list[Line]:
    return [line["event"] for line in of(lines, "event", rollout_id) if line["event"]["event"] == kind]


def final_builds(lines: list[Line], rollout_id: str) -> list[str]:
    """The last build status of each branch."""
    return list({line["branch_index"]: line["status"] for line in of(lines, "build", rollout_id)}.values())


def test_two_writings_give_the_same_bytes(tmp_path: Path) -> None:
    """Nothing in the sample depends on a clock or on chance."""
    first, second = tmp_path / "first.ndjson", tmp_path / "second.ndjson"
    assert write_sample(first) == write_sample(second) == len(list(sample_lines()))
    assert first.read_bytes() == second.read_bytes()


def test_every_line_has_a_known_type_and_its_fields(lines: list[Line]) -> None:
    """A reader of the sample meets only the seven documented lines, complete."""
    for line in lines:
        assert REQUIRED_FIELDS[line["type"]] <= line.keys(), line
    assert {line["type"] for line in lines} == REQUIRED_FIELDS.keys()


def test_verdict_and_rollout_lines_fit_their_records(lines: list[Line]) -> None:
    """A verdict line needs only an id, and a rollout line its tools as text, to be the record of its topic."""
    for kind, record in (("build", BuildVerdict), ("visual", VisualVerdict), ("check", CheckVerdict)):
        for line in of(lines, kind):
            record.model_validate({key: line[key] for key in line.keys() - {"type"}} | {"verdict_id": "v"})
    for line in of(lines, "rollout"):
        fields = {key: line[key] for key in line.keys() - {"type"}}
        RolloutOpened.model_validate(fields | {"tools": orjson.dumps(line["tools"]).decode()})


def test_a_dozen_rollouts_of_four_branches(lines: list[Line]) -> None:
    """Every rollout opens before anything else is said of it, and all four of its branches speak."""
    seen: dict[str, set[int]] = defaultdict(set)
    opened: set[str] = set()
    for line in lines:
        if line["type"] == "rollout":
            assert line["branches"] == 4
            opened.add(line["rollout_id"])
        assert line["rollout_id"] in opened
        if line["type"] == "event":
            seen[line["rollout_id"]].add(line["branch_index"])
    assert sorted(opened) == ALL_ROLLOUTS
    assert all(branches == {0, 1, 2, 3} for branches in seen.values())


def test_sequence_numbers_have_no_gaps(lines: list[Line]) -> None:
    """Each attempt numbers its events from 0 in the order of their times."""
    seqs: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for line in of(lines, "event"):
        if "seq" in line:
            seqs[line["rollout_id"], line["branch_index"], line["attempt"]].append(line["seq"])
    assert all(sorted(set(found)) == list(range(len(set(found)))) for found in seqs.values())


def test_branches_and_rollouts_interleave(lines: list[Line]) -> None:
    """The lines come in the order of time, not branch by branch."""
    first = [(line["rollout_id"], line["branch_index"]) for line in of(lines, "event")]
    changes = sum(1 for before, after in pairwise(first) if before != after)
    assert changes > len(first) / 4
    times = [event.get("timestampMs", event.get("timestamp_ms")) for event in (e["event"] for e in of(lines, "event"))]
    assert min(times) > BASE_MS


def test_verdicts_follow_their_branch_and_votes_come_last(lines: list[Line]) -> None:
    """No verdict is older than its branch's last event, and no vote older than a verdict of its rollout."""
    last_event = {
        (line["rollout_id"], line["branch_index"]): at for at, line in enumerate(lines) if line["type"] == "event"
    }
    last_verdict: dict[str, int] = {}
    for at, line in enumerate(lines):
        if line["type"] in ("build", "visual", "check"):
            last_verdict[line["rollout_id"]] = at
            assert at > last_event[line["rollout_id"], line["branch_index"]]
    assert all(at > last_verdict.get(v["rollout_id"], 0) for at, v in enumerate(lines) if v["type"] == "vote")


def test_keys_are_spelled_in_every_accepted_way(lines: list[Line]) -> None:
    """Some producers write camelCase, some snake_case, some `name` for the tool, and one leaves out seq."""
    calls = [line["event"]["data"] for line in of(lines, "event") if line["event"]["event"] == "tool_call"]
    assert all(any(key in data for data in calls) for key in ("toolName", "tool_name", "name"))
    assert {"traceId" in line["event"] for line in of(lines, "event")} == {True, False}
    assert {line["rollout_id"] for line in of(lines, "event") if "seq" not in line} == {"markdown-table"}


def test_token_counts_are_cumulative(lines: list[Line]) -> None:
    """A later model_done never reports fewer tokens than an earlier one of its run."""
    tokens: dict[str, int] = defaultdict(int)
    for event in events(lines, "model_done"):
        trace = event.get("traceId") or event["trace_id"]
        used = event["data"].get("inputTokens") or event["data"]["input_tokens"]
        assert used > tokens[trace]
        tokens[trace] = used


def test_parallel_calls_share_a_batch(lines: list[Line]) -> None:
    """Where several calls were made at once, they name one batch and its size."""
    calls = [event["data"] for event in events(lines, "tool_call") if "batchId" in event["data"]]
    batches: dict[str, set[str]] = defaultdict(set)
    for call in calls:
        batches[call["batchId"]].add(call["callId"])
    assert all(len(batches[call["batchId"]]) == call["batchSize"] for call in calls)
    assert max(call["batchSize"] for call in calls) >= 3


def test_tools_fail_and_one_output_is_very_long(lines: list[Line]) -> None:
    """There are tool errors with code and message, outputs that are not text, and one of several hundred lines."""
    results = [event["data"] for event in events(lines, "tool_result")]
    assert all(result["error"].keys() == {"code", "message"} for result in results if "error" in result)
    assert {result["error"]["code"] for result in results if "error" in result} >= {"network_denied", "timeout"}
    assert any(isinstance(result["output"], dict) for result in results)
    assert any(isinstance(result["output"], list) for result in results)
    assert max(result["output"].count("\n") for result in results if isinstance(result["output"], str)) > 400


def test_most_groups_are_mixed(lines: list[Line]) -> None:
    """In most rollouts some branches succeed and some do not, which is what makes preference pairs."""
    mixed = [name for name in ALL_ROLLOUTS if {"success", "failure"} <= set(final_builds(lines, name))]
    assert len(mixed) >= 7


def test_one_rollout_passes_throughout_and_one_fails_throughout(lines: list[Line]) -> None:
    """There is a group that only the judge can order, and one without any success."""
    assert final_builds(lines, "lru-cache") == ["success"] * 4
    assert final_builds(lines, "rate-limiter") == ["failure"] * 4


def test_one_rollout_requires_nothing(lines: list[Line]) -> None:
    """Where nothing is required there are votes and no verdicts."""
    assert [line["rollout_id"] for line in of(lines, "rollout") if line["required"] == []] == ["markdown-table"]
    assert not of(lines, "build", "markdown-table")
    assert len(of(lines, "vote", "markdown-table")) == 6 * 4


def test_a_failure_may_exit_with_zero(lines: list[Line]) -> None:
    """One build failed although its process reported 0."""
    assert any(line["status"] == "failure" and line["exit_code"] == 0 for line in of(lines, "build", "cli-dry-run"))


def test_one_build_never_finishes(lines: list[Line]) -> None:
    """One branch has only a running build, so its outcome is unknown."""
    assert [line["status"] for line in of(lines, "build", "signup-endpoint", 3)] == ["running"]


def test_visually_broken_branches_build(lines: list[Line]) -> None:
    """Branches whose page throws, overflows or stays empty have a successful build beside a failed look."""
    (build,) = of(lines, "build", "pricing-page-layout", 1)
    (visual,) = of(lines, "visual", "pricing-page-layout", 1)
    assert (build["status"], visual["verdict"]) == ("success", "fail")
    assert "TypeError" in visual["uncaught_errors"][0]
    assert any(not probe["ok"] for line in of(lines, "visual") for probe in line.get("dom_probes", []))
    assert any(line.get("renders_non_empty") is False for line in of(lines, "visual"))
    assert any(line["verdict"] == "pending" for line in of(lines, "visual"))


def test_branches_crash_stop_and_fall_silent(lines: list[Line]) -> None:
    """A provider is overloaded, a run is out of steps, one branch is aborted, and one is never heard of again."""
    errors = [event["data"]["error"] for event in events(lines, "error")]
    assert any("529" in error and "overloaded_error" in error for error in errors)
    assert any("max steps" in error for error in errors)
    assert {line["status"] for line in of(lines, "end")} == {"aborted", "infra_error"}
    silent = of(lines, "event", "sql-migration", 3)
    assert silent[-1]["event"]["event"] == "tool_call"
    assert not of(lines, "end", "sql-migration", 3)


def test_a_lost_branch_is_tried_again(lines: list[Line]) -> None:
    """The second attempt begins after the first one crashed, and its verdict says so."""
    attempts = [line["attempt"] for line in of(lines, "event", "csv-parser", 3)]
    assert attempts == sorted(attempts)
    assert set(attempts) == {0, 1}
    assert [line["attempt"] for line in of(lines, "build", "csv-parser", 3)] == [1]


def test_one_line_comes_twice(lines: list[Line]) -> None:
    """A producer that lost an acknowledgement sent one line again, byte for byte."""
    counts = Counter(orjson.dumps(line) for line in lines)
    assert sorted(counts.values())[-2:] == [1, 2]


def test_a_tool_shows_what_looks_like_credentials(lines: list[Line]) -> None:
    """One output holds a key and a token (both made up), and nothing else in the sample does."""
    leaks = [line for line in lines if b"AKIA" in orjson.dumps(line)]
    assert len(leaks) == 1
    assert leaks[0]["event"]["event"] == "tool_result"
    assert "ghp_" in leaks[0]["event"]["data"]["output"]


def test_a_protected_test_is_changed(lines: list[Line]) -> None:
    """One passing branch edited the test that it was told to leave alone."""
    changed = [line for line in of(lines, "build") if line.get("protected_paths_intact") is False]
    assert [(line["rollout_id"], line["status"]) for line in changed] == [("flaky-date-test", "success")]


def test_counts_and_coverage_are_consistent(lines: list[Line]) -> None:
    """Test counts add up, and coverage is a share."""
    for line in of(lines, "build"):
        tests = line.get("tests", {"passed": 0, "failed": 0, "skipped": 0, "total": 0})
        assert tests["total"] == tests["passed"] + tests["failed"] + tests["skipped"]
        assert 0 <= line.get("coverage", 0) <= 1
        assert tests["failed"] == 0 or line["status"] == "failure"
    assert any(line.get("tests", {}).get("skipped") for line in of(lines, "build"))
    assert any("coverage" in line for line in of(lines, "build"))


def test_every_pair_is_judged_in_both_orders_twice(lines: list[Line]) -> None:
    """A judged pair has four votes: two orders with two samples each."""
    votes: dict[tuple[str, int, int], set[tuple[str, int]]] = defaultdict(set)
    for line in of(lines, "vote"):
        assert line["a"] < line["b"]
        votes[line["rollout_id"], line["a"], line["b"]].add((line["order"], line["sample"]))
    assert all(found == {("ab", 0), ("ab", 1), ("ba", 0), ("ba", 1)} for found in votes.values())
    assert Counter(len([key for key in votes if key[0] == name]) for name in ALL_ROLLOUTS)[0] == 0


def test_votes_include_ties_a_biased_judge_and_missing_answers(lines: list[Line]) -> None:
    """Some votes are ties, some have a cause instead of a preference, one pair only shows the judge's position bias."""
    votes = of(lines, "vote")
    assert any(vote["preferred"] == "tie" for vote in votes)
    assert {vote["cause"] for vote in votes if vote["preferred"] is None} == {"timeout", "unparseable"}
    assert all(vote["reasoning"] for vote in votes if vote["preferred"] is not None)
    biased = [vote for vote in of(lines, "vote", "lru-cache") if (vote["a"], vote["b"]) == (1, 3)]
    assert [(vote["order"], vote["preferred"]) for vote in biased] == [("ab", "a")] * 2 + [("ba", "b")] * 2


@pytest.mark.parametrize("script", list(scripts()), ids=lambda script: script.id)
def test_written_files_have_the_size_their_tool_reports(script: RolloutScript) -> None:
    """A script's write_file outputs tell the true number of bytes."""
    for branch in script.branch:
        for call in (call for turn in branch.turn for call in turn.call):
            if call.tool == "write_file" and isinstance(call.output, dict):
                assert call.output["bytes"] == len(str(call.args["content"]).encode()), call.args["path"]


def test_the_golden_trajectory_has_what_a_golden_test_needs(golden: list[Line]) -> None:
    """One rollout, one branch that passes and one that fails, with every shape that messages are made from."""
    (rollout,) = of(golden, "rollout")
    assert rollout["system_prompt"]
    assert [tool["function"]["name"] for tool in rollout["tools"]] == ["read_file", "write_file", "run", "search"]
    assert {line["branch_index"]: line["status"] for line in of(golden, "build")} == {0: "success", 1: "failure"}
    assert {event["data"]["batchSize"] for event in events(golden, "tool_call")} == {1, 2}
    results = [event["data"] for event in events(golden, "tool_result")]
    assert any("error" in result for result in results)
    assert any(isinstance(result["output"], dict) for result in results)
    assert any(
        len(str(result["output"]).encode()) > 800 and str(result["output"]).count("\n") > 8 for result in results
    )
    assert len(events(golden, "final_answer")) == 2
    assert any(not event["data"]["delta"].isascii() for event in events(golden, "thinking_delta"))
