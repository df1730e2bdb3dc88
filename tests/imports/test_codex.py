"""Codex: steps from items alone, forks in other files, going back, failures that only events tell."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.importers.traces.rollout_book import Grouping
from tests.agents.formats.rollouts import group_of
from tests.conformance import conformance
from tests.imports.facts import count
from tests.imports.importing import Read, read_traces

SAMPLES = Path(__file__).parent / "samples" / "codex"


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-11-18T00:00:00.000Z", "type": kind, "payload": payload}


def meta(name: str = "s", **more: Any) -> dict[str, Any]:
    return line("session_meta", id=name, cli_version="0.1", **more)


def event(kind: str, **more: Any) -> dict[str, Any]:
    return line("event_msg", type=kind, **more)


def said(role: str, words: str) -> dict[str, Any]:
    return line("response_item", type="message", role=role, content=[{"type": "text", "text": words}])


def call(name: str, **more: Any) -> dict[str, Any]:
    return line("response_item", type="function_call", name="shell", arguments="{}", call_id=name, **more)


def output(name: str, words: Any) -> dict[str, Any]:
    return line("response_item", type="function_call_output", call_id=name, output=words)


def session(folder: Path, *lines: dict[str, Any], name: str = "s") -> Path:
    file = folder / f"{name}.jsonl"
    file.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return file


def read(folder: Path, *lines: dict[str, Any]) -> Read:
    return read_traces("codex", session(folder, meta(), *lines))


def test_a_fork_is_a_branch_that_begins_with_the_lines_of_its_parent() -> None:
    found = read_traces("codex", SAMPLES / "forked")
    counts, ends, tokens = count(found.lines)
    assert counts == {
        "rollouts": 1, "branches": 2, "tool_call": 4, "tool_result": 4, "errors": 2, "texts": 6, "user": 2, "final": 2,
        "pass": 0, "fail": 0,
    }  # fmt: skip
    assert (ends, tokens) == ({"answered": 2}, (620, 122))
    told = [[each["event"] for each in found.of("event") if each["branch_index"] == branch] for branch in (0, 1)]
    shared = [one for one, other in zip(*told, strict=False) if one == other]
    assert [each["event"] for each in shared if each["event"] != "status"] == [
        "run_start", "context_message", "context_message", "reasoning", "assistant_message", "model_done", "tool_call",
        "tool_call", "tool_result", "tool_result", "assistant_message", "model_done",
    ]  # fmt: skip


def test_a_fork_joins_its_parent_when_files_are_named_one_by_one() -> None:
    apart = read_traces("codex", *sorted((SAMPLES / "forked").iterdir(), reverse=True))
    assert (apart.found.rollouts, apart.found.branches, apart.rejected.count) == (1, 2, 0)


def test_the_prompt_of_a_pair_is_exactly_what_a_fork_shares() -> None:
    found = read_traces("codex", SAMPLES / "forked", grouping=Grouping(required=("good",)))
    (opening,) = found.of("rollout")
    judged = [
        {"type": "check", "rollout_id": opening["rollout_id"], "branch_index": branch, "name": "good", "status": status}
        for branch, status in enumerate(("pass", "fail"))
    ]
    (pair,) = group_of([*found.lines, *judged]).dpo
    roles = [message.role for message in pair.prompt]
    assert roles == ["system", "developer", "user", "user", "assistant", "tool", "tool"]
    assert [message.content for message in pair.chosen] == ["It subtracts.", "Then say hello", "Hello there."]
    assert [message.content for message in pair.rejected] == ["It subtracts.", "Rather stop", "I give up."]


def test_a_fork_without_its_parent_is_reported_and_becomes_no_row() -> None:
    (fork,) = [file for file in (SAMPLES / "forked").iterdir() if "cad3" in file.name]
    found = read_traces("codex", fork)
    assert found.rejected.count == 1
    assert found.events("content_left_out")[0]["reason"] == "parent_missing"


def test_a_fork_that_copied_its_lines_takes_none_from_its_parent(tmp_path: Path) -> None:
    shared = [said("user", "go"), event("user_message", message="go"), said("assistant", "hm")]
    session(tmp_path, meta("a"), *shared, name="a")
    more = [said("user", "on"), event("user_message", message="on"), said("assistant", "done")]
    session(tmp_path, meta("b", forked_from_id="a"), *shared, *more, name="b")
    found = read_traces("codex", tmp_path)
    assert (found.found.rollouts, found.found.branches) == (1, 2)
    assert [data["answer"] for data in found.events("final_answer")] == ["hm", "done"]
    assert [data["text"] for data in found.events("assistant_message")] == ["hm"]


def test_going_back_in_a_session_leaves_a_branch_behind(tmp_path: Path) -> None:
    def ask(words: str, answer: str) -> list[dict[str, Any]]:
        return [said("user", words), event("user_message", message=words), said("assistant", answer)]

    back = event("thread_rolled_back", num_turns=1)
    found = read(tmp_path, *ask("go", "hm"), *ask("on", "no"), back, *ask("else", "yes"))
    told = [data["answer"] for data in found.events("final_answer")]
    assert told == ["no", "yes"]
    assert [data["text"] for data in found.events("user_message")] == ["on", "else"]


def test_a_sub_agents_session_is_told_in_its_parent() -> None:
    found = read_traces("codex", SAMPLES / "subagent")
    kinds = [each["event"]["event"] for each in found.of("event")]
    assert (found.found.rollouts, found.found.branches) == (1, 1)
    assert kinds[kinds.index("subagent_run_start") - 1] == "tool_call"
    assert kinds.count("subagent_tool_call") == 1
    assert any(data["text"].startswith("<subagent_notification>") for data in found.events("context_message"))


def test_calls_of_all_kinds_and_ends_of_all_kinds_are_told() -> None:
    found = read_traces("codex", SAMPLES / "others")
    counts, ends, _ = count(found.lines)
    assert ends == {"aborted": 1, "answered": 2, "infra_error": 1}
    assert (counts["tool_call"], counts["tool_result"], counts["errors"], counts["final"]) == (5, 4, 4, 2)
    calls = {data["toolName"]: data for data in found.events("tool_call")}
    assert calls["apply_patch"]["args"]["input"].startswith("*** Begin Patch")
    assert calls["web_search"]["args"] == {"type": "search", "query": "python add"}
    assert "argsError" in next(data for data in found.events("tool_call") if "argsText" in data)


def test_sessions_of_one_task_are_branches_when_grouped_by_it() -> None:
    found = read_traces("codex", conformance("imports", "codex"), grouping=Grouping(group_by="task"))
    assert (found.found.rollouts, found.found.branches) == (1, 2)


@pytest.mark.parametrize(
    ("beside", "words", "error"),
    [
        (event("exec_command_end", call_id="c", exit_code=2), "no such file", {"code": "2", "message": "exit code 2"}),
        (event("exec_command_end", call_id="c", exit_code=0), "fine", None),
        (event("item_completed", item={"type": "FileChange", "id": "c", "status": "failed"}), "no", {"code": "failed", "message": "no"}),
        (event("other"), '{"output":"x","metadata":{"exit_code":1}}', {"code": "1", "message": "exit code 1"}),
        (event("other"), {"content": "no", "success": False}, {"code": "failed", "message": "no"}),
        (event("other"), "Error: this is only a text", None),
    ],
)  # fmt: skip
def test_only_the_program_says_that_a_call_failed(
    tmp_path: Path, beside: dict[str, Any], words: Any, error: dict[str, str] | None
) -> None:
    found = read(tmp_path, said("user", "go"), call("c"), output("c", words), beside)
    assert found.events("tool_result")[0].get("error") == error


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([event("task_started"), event("task_complete")], "answered"),
        ([event("task_started")], None),
        ([event("task_started"), event("turn_aborted", reason="interrupted")], "aborted"),
        ([event("task_started"), event("error", message="429"), event("task_complete")], "infra_error"),
        ([event("task_complete", error={"message": "full", "codex_error_info": "context_window_exceeded"})], "failed"),
        ([], "answered"),
    ],
)
def test_a_session_ends_as_its_events_say(tmp_path: Path, events: list[dict[str, Any]], status: str | None) -> None:
    found = read(tmp_path, said("user", "go"), said("assistant", "done"), *events)
    assert [each["status"] for each in found.of("end")] == ([] if status is None else [status])


def test_usage_is_that_of_the_last_count(tmp_path: Path) -> None:
    def used(given: int, taken: int) -> dict[str, Any]:
        return event("token_count", info={"total_token_usage": {"input_tokens": given, "output_tokens": taken}})

    lines = [
        said("user", "go"),
        call("c"),
        used(10, 1),
        output("c", "ok"),
        used(10, 1),
        said("assistant", "done"),
        used(25, 3),
    ]
    found = read(tmp_path, *lines)
    assert [(data["inputTokens"], data["outputTokens"]) for data in found.events("model_done")] == [(10, 1), (25, 3)]


def test_a_compaction_is_told(tmp_path: Path) -> None:
    found = read(
        tmp_path, said("user", "go"), said("assistant", "hm"), line("compacted", message="so far"), said("user", "on"),
        said("assistant", "done"),
    )  # fmt: skip
    assert found.events("context_rewritten") == [{"kept": 0, "dropped": 2}]
    assert found.events("context_message")[0]["text"] == "so far"


def test_a_line_without_payload_is_an_event_in_its_place(tmp_path: Path) -> None:
    found = read(tmp_path, said("user", "go"), {"type": "response_item", "payload": 5}, said("assistant", "done"))
    assert found.events("unreadable")[0]["position"] == "line 3"
    assert found.rejected.count == 1
    assert found.events("final_answer")[0]["answer"] == "done"
