"""ToolSandbox: similarities that decide only at their ends, exceptions of tools and of the harness."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.conformance import conformance
from tests.imports.importing import Read, read_traces

SAID = [
    {"role": "user", "content": "Wifi off"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "wifi", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "name": "wifi", "content": "ValueError: already off"},
    {"role": "assistant", "content": "It is off."},
]


def run(folder: Path, messages: Any = None, **result: Any) -> Read:
    """Import a run with one scenario."""
    place = folder / "agent_a_user_b" / "trajectories" / "wifi_off"
    place.mkdir(parents=True)
    (place / "conversation.json").write_bytes(orjson.dumps(SAID if messages is None else messages))
    scenarios = [{"name": "wifi_off", "exception_type": None, "similarity": 0.5} | result] if result else []
    (place.parents[1] / "result_summary.json").write_bytes(orjson.dumps({"per_scenario_results": scenarios}))
    return read_traces("auto", folder / "agent_a_user_b")


@pytest.mark.parametrize(("similarity", "status"), [(1, "pass"), (1.0, "pass"), (0, "fail"), (0.95, "unknown")])
def test_a_similarity_decides_only_at_its_ends(tmp_path: Path, similarity: float, status: str) -> None:
    """Between them it is unknown, with its score."""
    (check,) = run(tmp_path, similarity=similarity).of("check")
    assert (check["status"], check["score"]) == (status, similarity)


def test_the_zero_of_an_exception_is_no_score(tmp_path: Path) -> None:
    """ToolSandbox gives 0 to a scenario that its own code broke."""
    found = run(tmp_path, similarity=0, exception_type="KeyError", traceback="Traceback\nKeyError: 'x'\n")
    assert [(line["status"], line["error"]) for line in found.of("end")] == [("infra_error", "KeyError: 'x'")]
    assert found.of("check") == []


def test_an_exception_of_a_tool_is_its_error(tmp_path: Path) -> None:
    """The model sees it as text."""
    (result,) = run(tmp_path, similarity=1).events("tool_result")
    assert result["error"] == {"code": "ValueError", "message": "already off"}


def test_a_scenario_that_the_summary_does_not_name_has_not_ended(tmp_path: Path) -> None:
    """The run may still go on."""
    found = run(tmp_path)
    assert (found.found.branches, found.of("end"), found.of("check")) == (1, [], [])


def test_a_bad_message_leaves_its_neighbours(tmp_path: Path) -> None:
    """It is an event in its place, and a rejection."""
    found = run(tmp_path, [SAID[0], 5, SAID[3]], similarity=1)
    assert [each["raw"] for each in found.events("unreadable")] == [5]
    assert (len(found.events("final_answer")), found.rejected.count) == (1, 1)


def test_a_folder_above_names_the_run_by_its_folder() -> None:
    """The same rollouts, whether the run's folder or the one above is named."""
    above = read_traces("auto", conformance("imports", "tool-sandbox"))
    inside = read_traces("auto", conformance("imports", "tool-sandbox", "agent_scripted_user_scripted"))
    assert [line["rollout_id"] for line in above.of("rollout")] == [line["rollout_id"] for line in inside.of("rollout")]
