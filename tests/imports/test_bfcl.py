"""BFCL: calls that were never run, scores that list failures only, and responses that are an error of the provider."""

from pathlib import Path
from typing import Any

import orjson

from agents.importers.traces.format import Options
from tests.conformance import conformance
from tests.imports.importing import Read, read_traces

SAMPLE = Path(__file__).parent / "samples" / "bfcl"
GROUP = "non_live/BFCL_v4_parallel"


def write(folder: Path, model: str, rows: list[dict[str, Any]], score: list[dict[str, Any]] | None = None) -> Path:
    """A result file, and the score file beside it."""
    for kind, lines in (("result", rows), ("score", score)):
        if lines is not None:
            place = folder / kind / model / f"{GROUP}_{kind}.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return folder


def statuses(found: Read) -> list[str]:
    """The verdicts, in order."""
    return [line["status"] for line in found.of("check")]


CALL = {"id": "parallel_0", "result": [{"play": '{"artist": "Queen"}'}]}


def test_models_are_branches_of_a_question(tmp_path: Path) -> None:
    """One rollout for an id, a branch for each model."""
    write(tmp_path, "one", [CALL])
    found = read_traces("auto", write(tmp_path, "two", [CALL]))
    assert (found.found.rollouts, found.found.branches) == (1, 2)
    agents = [line["agent"]["model"] for line in found.of("event") if "agent" in line]
    assert agents == ["one", "two"]


def test_what_is_not_listed_passed_only_if_all_rows_were_scored(tmp_path: Path) -> None:
    """A score of fewer rows says nothing about the others."""
    rows = [CALL, CALL | {"id": "parallel_1"}]
    listed = {"id": "parallel_0", "valid": False, "error_type": "wrong_count"}
    whole = read_traces("bfcl", write(tmp_path / "whole", "m", rows, [{"total_count": 2}, listed]))
    part = read_traces("bfcl", write(tmp_path / "part", "m", rows, [{"total_count": 1}, listed]))
    assert statuses(whole) == ["fail", "pass"]
    assert statuses(part) == ["fail", "unknown"]
    assert whole.of("check")[0]["hint"] == "wrong_count"


def test_without_a_score_there_is_no_verdict(tmp_path: Path) -> None:
    """Nothing is required then."""
    found = read_traces("bfcl", write(tmp_path, "m", [CALL]))
    assert statuses(found) == []
    assert found.of("rollout")[0]["required"] == []


def test_an_error_of_the_provider_is_no_failure_of_the_model(tmp_path: Path) -> None:
    """The checker lists such a row as failed."""
    broken = {"id": "parallel_0", "result": "Error during inference: 503", "traceback": "..."}
    found = read_traces(
        "bfcl", write(tmp_path, "m", [broken], [{"total_count": 1}, {"id": "parallel_0", "valid": False}])
    )
    assert [line["status"] for line in found.of("end")] == ["infra_error"]
    assert statuses(found) == []


def test_the_question_comes_from_tasks_or_from_the_score(tmp_path: Path) -> None:
    """The results of single turns do not repeat it."""
    asked = {"question": [[{"role": "user", "content": "Play Queen."}]]}
    folder = write(tmp_path, "m", [CALL], [{"total_count": 1}, {"id": "parallel_0", "valid": False, "prompt": asked}])
    assert [each["task"] for each in read_traces("bfcl", folder).events("run_start")] == ["Play Queen."]
    given = read_traces("bfcl", folder, options=Options(tasks={"parallel_0": "Another."}))
    assert [each["task"] for each in given.events("run_start")] == ["Another."]


def test_a_model_that_never_stops_failed(tmp_path: Path) -> None:
    """The harness stops it after 20 steps."""
    step = [{"role": "handler_log", "content": "Model has been forced to quit after 20 steps."}]
    log = [{"begin_of_turn_query": [{"role": "user", "content": "Go."}], "step_0": step}]
    found = read_traces("bfcl", write(tmp_path, "m", [CALL | {"result": [[[{"ls": "{}"}]]], "inference_log": log}]))
    assert [line["status"] for line in found.of("end")] == ["failed"]


def test_results_belong_to_the_calls_of_their_step(tmp_path: Path) -> None:
    """A call that could not be run takes no result of a later one."""
    turns = [{"begin_of_turn_query": [{"role": "user", "content": "Go."}], "step_0": []} for _ in range(2)]
    turns[1]["step_0"] = [{"role": "tool", "content": "second"}]
    rows = [CALL | {"result": [[[{"bad": "{"}]], [[{"good": "{}"}]]], "inference_log": turns}]
    found = read_traces("bfcl", write(tmp_path, "m", rows))
    assert [(each["toolName"], each["output"]) for each in found.events("tool_result")] == [("good", "second")]
    assert found.events("tool_call")[0]["argsText"] == "{"


def test_calls_in_the_text_of_a_model_stay_text() -> None:
    """A model without function calling has its functions in the system prompt, and results that no call asked for."""
    found = read_traces("auto", SAMPLE)
    assert [line["status"] for line in found.of("end")] == ["answered", "infra_error"]
    assert found.of("rollout")[0]["system_prompt"].startswith("You are an expert in composing functions.")
    assert found.events("assistant_message")[0]["text"] == "[ls(a=True)]"
    assert len(found.events("tool_result")) == 4
    assert found.found.plain(0)["user"] == 3


def test_results_alone_are_read(tmp_path: Path) -> None:
    """A single file says neither its model nor its score."""
    name = "BFCL_v4_irrelevance_result.json"
    found = read_traces("auto", conformance("imports", "bfcl", "result", "scripted-FC", "non_live", name))
    assert (found.found.branches, statuses(found)) == (6, [])
