"""Google ADK: errors of the provider and of the model, agents that hand over or run side by side, evaluations."""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.importers.traces.rollout_book import Grouping
from tests.agents.formats.rollouts import group_of
from tests.conformance import conformance
from tests.imports.importing import Read, read_traces

SAMPLES = Path(__file__).parent / "samples" / "adk"


def session(folder: Path, *events: dict[str, Any]) -> Read:
    """Import a session of these events."""
    (folder / "s.json").write_bytes(orjson.dumps({"id": "s1", "appName": "a", "events": events}))
    return read_traces("auto", folder / "s.json")


def said(author: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An event."""
    return {"author": author, "invocationId": "i", "content": {"role": "model", "parts": parts}, **more}


ASKED = said("user", {"text": "Go."})


def test_sessions_of_one_task_are_branches() -> None:
    """`--group-by` names a field of the session."""
    found = read_traces(
        "adk", conformance("imports", "adk", "sessions.jsonl"), grouping=Grouping(group_by="state.task_id")
    )
    assert (found.found.rollouts, found.found.branches) == (1, 3)


@pytest.mark.parametrize(
    ("code", "message", "status"),
    [
        ("RESOURCE_EXHAUSTED", "", "infra_error"),
        ("UNAVAILABLE", "", "infra_error"),
        ("500", "Internal Server Error", "infra_error"),
        ("OTHER", "429 too many requests", "infra_error"),
        ("MALFORMED_FUNCTION_CALL", "bad call", "failed"),
        ("MAX_TOKENS", "", "failed"),
    ],
)
def test_an_error_is_the_providers_or_the_models(tmp_path: Path, code: str, message: str, status: str) -> None:
    """Only the last one ends the session."""
    error = {"author": "a", "invocationId": "i", "errorCode": code, "errorMessage": message}
    found = session(tmp_path, ASKED, said("a", {"text": "I begin."}), error)
    assert [line["status"] for line in found.of("end")] == [status]
    assert found.events("final_answer") == []
    again = session(tmp_path, ASKED, error, ASKED, said("a", {"text": "Done."}))
    assert [line["status"] for line in again.of("end")] == ["answered"]


@pytest.mark.parametrize(
    "response",
    [{"error": "gone"}, {"status": "error", "error_message": "gone"}, {"status": "ERROR", "message": "gone"}],
)
def test_a_response_that_says_error_is_one(tmp_path: Path, response: dict[str, str]) -> None:
    """By its field, or by its status."""
    calls = said("a", {"functionCall": {"name": "look", "args": {}}})
    found = session(tmp_path, ASKED, calls, said("a", {"functionResponse": {"name": "look", "response": response}}))
    assert [each["error"]["message"] for each in found.events("tool_result")] == ["gone"]
    assert found.of("end") == []  # the model has not answered


def test_partial_events_are_pieces_of_those_that_follow(tmp_path: Path) -> None:
    """They would double the text."""
    found = session(tmp_path, ASKED, said("a", {"text": "Hel"}, partial=True), said("a", {"text": "Hello"}))
    assert [each["answer"] for each in found.events("final_answer")] == ["Hello"]
    assert found.events("assistant_message") == []


def test_code_that_the_service_ran_cuts_its_response(tmp_path: Path) -> None:
    """The words behind its output were written after it."""
    ran = (
        {"executableCode": {"code": "1+1", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "2"}},
    )
    found = session(tmp_path, ASKED, said("a", {"text": "I compute."}, *ran, {"text": "It is 2."}))
    assert [each["args"]["code"] for each in found.events("tool_call")] == ["1+1"]
    assert [each["error"]["code"] for each in found.events("tool_result")] == ["OUTCOME_FAILED"]
    assert [each["answer"] for each in found.events("final_answer")] == ["It is 2."]


def test_another_agent_does_not_see_what_the_first_did() -> None:
    """ADK tells it the words of the others as those of a user: such a session is in no row."""
    found = read_traces("auto", SAMPLES / "sessions.jsonl")
    transfer = [
        line["event"]["event"]
        for line in found.of("event")
        if line["rollout_id"] == found.of("rollout")[0]["rollout_id"]
    ]
    assert [kind for kind in transfer if kind in ("handoff", "context_rewritten")] == ["handoff", "context_rewritten"]


def test_agents_side_by_side_are_sub_agents() -> None:
    """Each in its branch of the session."""
    found = read_traces("auto", SAMPLES / "sessions.jsonl")
    assert [each["answer"] for each in found.events("subagent_final_answer")] == ["A says yes.", "B says no."]


def test_events_without_a_session_are_read() -> None:
    """An array or lines of events is one session."""
    found = read_traces("auto", SAMPLES / "events.json")
    counts = found.found.plain(0)
    assert (counts["branches"], counts["tool_call"], counts["texts"], counts["user"]) == (1, 1, 2, 1)
    assert counts["ends"] == {"failed": 1}


def test_events_in_lines_are_gathered_by_their_session(tmp_path: Path) -> None:
    """Sessions may be mixed."""
    lines = [ASKED | {"session_id": "x"}, ASKED | {"session_id": "y"}, said("a", {"text": "X."}, session_id="x"),
             said("a", {"text": "Y."}, session_id="y")]  # fmt: skip
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    found = read_traces("auto", tmp_path / "events.jsonl")
    assert [each["answer"] for each in found.events("final_answer")] == ["X.", "Y."]


def test_metrics_of_an_evaluation_are_checks(tmp_path: Path) -> None:
    """Runs of one case are branches; a metric that was not evaluated has no verdict. Older files are JSON in a text."""
    packed = SAMPLES / "demo.evalset_result.json.gz"
    found = read_traces("auto", packed)
    assert (found.found.rollouts, found.found.branches) == (2, 4)
    assert [(line["name"], line["status"]) for line in found.of("check")] == [
        ("tool_trajectory_avg_score", status) for status in ("fail", "pass", "fail", "pass")
    ]
    (tmp_path / "old.evalset_result.json").write_bytes(orjson.dumps(gzip.decompress(packed.read_bytes()).decode()))
    old = read_traces("auto", tmp_path / "old.evalset_result.json")
    assert old.found.plain(0) | {"formats": {}} == found.found.plain(0) | {"formats": {}}


def test_a_case_without_its_session_is_read_from_its_invocations(tmp_path: Path) -> None:
    """They say what was asked, which tools were used and what the answer was."""
    ran = {
        "user_content": {"parts": [{"text": "Go."}]},
        "intermediate_data": {
            "tool_uses": [{"id": "c", "name": "look", "args": {}}],
            "tool_responses": [{"id": "c", "name": "look", "response": {"ok": 1}}],
        },
        "final_response": {"parts": [{"text": "Done."}]},
    }
    case = {"eval_id": "e", "session_id": "s", "eval_metric_result_per_invocation": [{"actual_invocation": ran}]}
    (tmp_path / "r.json").write_bytes(orjson.dumps({"eval_set_id": "set", "eval_case_results": [case]}))
    found = read_traces("auto", tmp_path / "r.json")
    counts = found.found.plain(0)
    assert (counts["tool_call"], counts["tool_result"], counts["final"]) == (1, 1, 1)


def test_a_bad_event_leaves_its_neighbours(tmp_path: Path) -> None:
    """It is an event in its place, and a rejection."""
    found = session(tmp_path, ASKED, {"author": "a", "content": 5}, said("a", {"text": "Done."}))
    assert [each["position"] for each in found.events("unreadable")] == ["events[1]"]
    assert found.rejected.first == ["s.json: [0]: events[1].content: expected an object, found a number"]


def test_thoughts_are_tokens_of_the_response(tmp_path: Path) -> None:
    """Gemini counts them beside the candidates, and results of its own tools beside the prompt."""
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "toolUsePromptTokenCount": 2}
    done = session(tmp_path, ASKED, said("a", {"text": "Hi."}, usageMetadata=usage)).events("model_done")[-1]
    assert (done["inputTokens"], done["outputTokens"]) == (12, 12)


def test_the_prompt_of_a_pair_is_exactly_what_a_rewind_shares(tmp_path: Path) -> None:
    """Going back before an invocation leaves a branch behind."""
    events = [
        said("user", {"text": "Name a fruit."}, invocationId="1"), said("a", {"text": "Apple."}, invocationId="1"),
        said("user", {"text": "Another."}, invocationId="2"), said("a", {"text": "Stone."}, invocationId="2"),
        {"author": "user", "invocationId": "r", "actions": {"rewindBeforeInvocationId": "2"}},
        said("user", {"text": "Another."}, invocationId="3"), said("a", {"text": "Pear."}, invocationId="3"),
    ]  # fmt: skip
    (tmp_path / "s.json").write_bytes(orjson.dumps({"id": "s1", "events": events}))
    found = read_traces("adk", tmp_path / "s.json", grouping=Grouping(required=("fruit",)))
    assert [each["answer"] for each in found.events("final_answer")] == ["Stone.", "Pear."]
    (opening,) = found.of("rollout")
    judged = [
        {
            "type": "check",
            "rollout_id": opening["rollout_id"],
            "branch_index": branch,
            "name": "fruit",
            "status": status,
        }
        for branch, status in enumerate(("fail", "pass"))
    ]
    (pair,) = group_of([*found.lines, *judged]).dpo
    assert [message.content for message in pair.prompt] == ["Name a fruit.", "Apple.", "Another."]
    assert [message.content for message in (*pair.chosen, *pair.rejected)] == ["Pear.", "Stone."]


def test_a_rewind_to_nowhere_is_told(tmp_path: Path) -> None:
    """Nothing is taken back that is not there."""
    rewind = {"author": "user", "invocationId": "r", "actions": {"rewindBeforeInvocationId": "9"}}
    found = session(tmp_path, ASKED, said("a", {"text": "Hi."}), rewind)
    assert len(found.events("context_rewritten")) == 1
    assert found.found.plain(0)["branches"] == 1
