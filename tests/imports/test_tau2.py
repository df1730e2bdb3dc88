"""tau2-bench: the simulated user's tools, ends by their cause, results in a folder."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.conformance import conformance
from tests.imports.importing import Read, read_traces


def results(**changed: Any) -> dict[str, Any]:
    """The sample's first simulation, changed."""
    found: dict[str, Any] = orjson.loads(conformance("imports", "tau2", "results.json").read_bytes())
    return found | {"simulations": [found["simulations"][0] | changed]}


def read(folder: Path, value: dict[str, Any]) -> Read:
    """Import results."""
    place = folder / "results.json"
    place.write_bytes(orjson.dumps(value))
    return read_traces("tau2", place)


def test_tools_of_the_user_are_no_calls_of_the_model(tmp_path: Path) -> None:
    """They share ids with the agent's, and pair with their own results."""
    call = {"id": "c1", "name": "reboot", "arguments": {"now": True}, "requestor": "user"}
    said = [
        {"role": "user", "content": "My phone is slow."},
        {
            "role": "assistant",
            "content": "Reboot it.",
            "tool_calls": [call | {"requestor": "assistant", "name": "look"}],
        },
        {"id": "c1", "role": "tool", "content": "on", "requestor": "assistant", "error": False},
        {"role": "user", "content": "I try.", "tool_calls": [call]},
        {"id": "c1", "role": "tool", "content": "off", "requestor": "user", "error": True},
        {"role": "user", "content": "Done."},
        {"role": "assistant", "content": "Good."},
    ]
    found = read(tmp_path, results(messages=said))
    assert [each["toolName"] for each in found.events("tool_call")] == ["look"]
    assert [each["output"] for each in found.events("tool_result")] == ["on"]
    assert [each["callId"] for each in found.events("user_tool_call", "user_tool_result")] == ["c1", "c1"]
    assert found.events("user_tool_result")[0]["error"] == {"message": "off"}
    assert [each["text"] for each in found.events("user_message")] == ["Done."]
    assert found.events("user_tool_call")[0]["source"]["content"] == "I try."


def test_bundled_tool_messages_are_results_of_their_own(tmp_path: Path) -> None:
    """A message may hold the results of several calls."""
    calls = [{"id": f"c{number}", "name": "look", "arguments": {}} for number in range(2)]
    results_of = [{"id": each["id"], "role": "tool", "content": each["id"]} for each in calls]
    said = [{"role": "assistant", "tool_calls": calls}, {"role": "tool", "tool_messages": results_of}]
    found = read(tmp_path, results(messages=said))
    assert [(each["callId"], each["output"]) for each in found.events("tool_result")] == [("c0", "c0"), ("c1", "c1")]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("agent_stop", "answered"), ("max_steps", "failed"), ("context_window_exceeded", "failed"),
        ("infrastructure_error", "infra_error"), ("user_error", "infra_error"), ("unexpected_error", "infra_error"),
    ],
)  # fmt: skip
def test_the_end_follows_from_its_cause(tmp_path: Path, reason: str, status: str) -> None:
    """The zero of a run that the harness broke is no verdict."""
    found = read(tmp_path, results(termination_reason=reason, reward_info={"reward": 0.0}))
    assert [end["status"] for end in found.of("end")] == [status]
    assert [check["status"] for check in found.of("check")] == ([] if status == "infra_error" else ["fail"])
    assert len(found.events("final_answer")) == (status == "answered")


def test_voice_runs_are_rejected_one_by_one(tmp_path: Path) -> None:
    """Their neighbours are read."""
    value = results()
    voice = value["simulations"][0] | {"messages": None, "ticks": [{"tick_id": 0}], "trial": 1}
    found = read(tmp_path, value | {"simulations": [voice, value["simulations"][0]]})
    assert found.found.branches == 1
    assert found.rejected.first == ["results.json: simulations[0]: ticks: a voice run: only text runs are read"]


def test_a_truncated_context_is_said(tmp_path: Path) -> None:
    """Such a branch does not show what the model saw."""
    value = results()
    value["simulations"][0]["messages"][4]["context_truncation"] = {"messages_dropped": 2, "messages_kept": 3}
    assert read(tmp_path, value).events("context_rewritten") == [{"kept": 3, "dropped": 2}]


def test_simulations_in_a_folder_are_those_of_one_file(tmp_path: Path) -> None:
    """results.json without simulations, and one file for each."""
    value = orjson.loads(conformance("imports", "tau2", "results.json").read_bytes())
    folder = tmp_path / "demo" / "simulations"
    folder.mkdir(parents=True)
    for each in value.pop("simulations"):
        (folder / f"{each['id']}.json").write_bytes(orjson.dumps(each, option=orjson.OPT_INDENT_2))
    (folder.parent / "results.json").write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))
    found = read_traces("auto", folder.parent)
    one = read_traces("tau2", conformance("imports", "tau2", "results.json"))
    assert found.found.plain(0) | {"formats": {}} == one.found.plain(0) | {"formats": {}}
    assert sessions(found) == sessions(one)


def sessions(found: Read) -> dict[int, str]:
    """The producer's id of each branch."""
    return {line["branch_index"]: line["session_id"] for line in found.of("event") if "session_id" in line}
