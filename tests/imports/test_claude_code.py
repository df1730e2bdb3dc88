"""Claude Code: responses that are spread over lines, rewinds and forks, sub-agents, compaction, errors."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.importers.traces.rollout_book import Grouping
from tests.agents.formats.rollouts import group_of
from tests.conformance import conformance
from tests.imports.facts import count
from tests.imports.importing import Read, read_traces

SAMPLES = Path(__file__).parent / "samples" / "claude-code"


def session(folder: Path, *lines: dict[str, Any]) -> Read:
    """Import a session of these lines."""
    common = {"sessionId": "s", "isSidechain": False, "version": "2.1.197"}
    file = folder / "s.jsonl"
    file.write_bytes(b"\n".join(orjson.dumps(common | line) for line in lines))
    return read_traces("claude-code", file)


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"role": "user", "content": content}, **more}


def assistant(
    uuid: str, parent: str | None, *parts: dict[str, Any], name: str = "m1", **message: Any
) -> dict[str, Any]:
    said = {"id": name, "role": "assistant", "model": "m", "content": list(parts), **message}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": said}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": name}}


def result(name: str, content: Any = "ok", **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": name, "content": content, **more}]


def test_rewinds_and_forked_sessions_are_branches_of_one_rollout() -> None:
    read = read_traces("claude-code", SAMPLES / "forked")
    counts, ends, tokens = count(read.lines)
    assert counts == {
        "rollouts": 1, "branches": 3, "tool_call": 6, "tool_result": 6, "errors": 3, "texts": 10, "user": 4, "final": 3,
        "pass": 0, "fail": 0,
    }  # fmt: skip
    assert (ends, tokens) == ({"answered": 3}, (1220, 203))


def test_a_forked_session_joins_its_parent_when_files_are_named_one_by_one() -> None:
    together = read_traces("claude-code", SAMPLES / "forked")
    apart = read_traces("claude-code", *sorted((SAMPLES / "forked").iterdir()))
    assert apart.text == together.text


def test_the_prompt_of_a_pair_is_exactly_what_a_rewind_shares() -> None:
    read = read_traces("claude-code", SAMPLES / "forked", grouping=Grouping(required=("good",)))
    (opening,) = read.of("rollout")
    judged = [
        {"type": "check", "rollout_id": opening["rollout_id"], "branch_index": branch, "name": "good", "status": status}
        for branch, status in enumerate(("pass", "fail", "fail"))
    ]
    group = group_of([*read.lines, *judged])
    (pair,) = [pair for pair in group.dpo if pair.rejected_branch == 1]
    shared = ["assistant", "tool", "tool", "assistant"]  # the pair parts where the model speaks next on both sides
    assert [message.role for message in pair.prompt] == ["user"] * 3 + shared[:-1]
    assert [message.content for message in pair.chosen] == ["It subtracts.", "Then say hello", "Hello there."]
    assert [message.content for message in pair.rejected] == ["It subtracts.", "Rather stop", "I give up."]


def test_branches_of_a_session_tell_what_they_share_with_the_same_events() -> None:
    read = read_traces("claude-code", SAMPLES / "forked")
    told = [[line["event"] for line in read.of("event") if line["branch_index"] == branch] for branch in (0, 1)]
    shared = [one for one, other in zip(*told, strict=False) if one == other]
    assert len(shared) == 12
    assert told[0][1:13] == shared


def test_a_sub_agent_is_told_after_the_call_that_started_it() -> None:
    read = read_traces("claude-code", SAMPLES / "subagent")
    kinds = [line["event"]["event"] for line in read.of("event")]
    place = kinds.index("subagent_run_start")
    assert kinds[place - 1] == "tool_call"
    assert kinds[-3:] == ["tool_result", "model_done", "final_answer"]
    assert kinds.count("subagent_tool_call") == kinds.count("subagent_tool_result") == kinds.count("tool_call") == 1


def test_sub_agents_become_rollouts_of_their_own_when_asked() -> None:
    read = read_traces("claude-code", SAMPLES / "subagent", grouping=Grouping(subagents="rollouts"))
    parent, own = read.of("rollout")
    assert own["labels"]["parent"] == parent["rollout_id"]
    assert own["labels"]["subagent"] == "general-purpose"
    assert not [line for line in read.of("event") if line["event"]["channel"] == "subagent"]


def test_errors_of_the_provider_interruptions_and_compactions_are_told() -> None:
    read = read_traces("claude-code", SAMPLES / "others")
    counts, ends, _ = count(read.lines)
    assert ends == {"aborted": 1, "answered": 1, "infra_error": 1}
    assert (counts["texts"], counts["final"]) == (3, 1)
    assert read.events("context_rewritten")[0]["kept"] == 1
    assert [data["message"][:14] for data in read.events("api_error")] == ["API Error: 529"]
    assert read.events("content_left_out")[0]["text"] == "No response requested."


def test_sessions_of_one_task_are_branches_when_grouped_by_it() -> None:
    read = read_traces("claude-code", conformance("imports", "claude-code"), grouping=Grouping(group_by="task"))
    assert (read.found.rollouts, read.found.branches) == (1, 2)


def test_a_reminder_after_the_prompt_is_not_the_task() -> None:
    read = read_traces("claude-code", conformance("imports", "claude-code"))
    assert {line["task"] for line in read.of("rollout")} == {"The test test_calc.py fails. Find out why and fix it."}
    assert {data["text"] for data in read.events("context_message")} >= {"[removed: product text]"}


def test_responses_of_a_server_that_repeats_its_ids_stay_apart(tmp_path: Path) -> None:
    used = {"input_tokens": 10, "output_tokens": 1}
    read = session(
        tmp_path, user("a", None, "go"), assistant("b", "a", use("t1"), usage=used), user("c", "b", result("t1")),
        assistant("d", "c", use("t1"), usage=used), user("e", "d", result("t1", "again")), assistant("f", "e", text("done"), usage=used),
    )  # fmt: skip
    assert [data["callId"] for data in read.events("tool_call")] == ["t1", "t1#2"]
    assert [data["output"] for data in read.events("tool_result")] == ["ok", "again"]
    assert read.events("model_done")[-1]["inputTokens"] == 30


def test_usage_of_a_response_is_that_of_its_last_line(tmp_path: Path) -> None:
    read = session(
        tmp_path, user("a", None, "go"), assistant("b", "a", text("I "), usage={"input_tokens": 10, "output_tokens": 1}),
        assistant("c", "b", text("see"), usage={"input_tokens": 10, "output_tokens": 7}),
    )  # fmt: skip
    assert read.events("final_answer")[0]["answer"] == "I see"
    assert read.events("model_done")[-1] == {"modelId": "m", "step": 0, "inputTokens": 10, "outputTokens": 7}


def test_progress_that_leads_nowhere_makes_no_branch(tmp_path: Path) -> None:
    progress = {"type": "progress", "uuid": "p", "parentUuid": "b", "data": {"type": "bash_progress"}}
    read = session(
        tmp_path, user("a", None, "go"), assistant("b", "a", use("t1")), progress, user("c", "b", result("t1")),
        assistant("d", "c", text("done"), name="m2"), {"type": "system", "uuid": "s", "parentUuid": "d", "subtype": "turn_duration"},
    )  # fmt: skip
    assert read.found.branches == 1
    assert [data["message"] for data in read.events("status")] == ["progress", "system turn_duration"]


def test_words_that_were_typed_while_the_agent_worked_are_the_users(tmp_path: Path) -> None:
    queued = {
        "type": "attachment",
        "uuid": "q",
        "parentUuid": "c",
        "attachment": {"type": "queued_command", "prompt": "also b"},
    }
    read = session(
        tmp_path, user("a", None, "go"), assistant("b", "a", use("t1")), user("c", "b", result("t1")), queued,
        assistant("d", "q", text("done"), name="m2"),
    )  # fmt: skip
    assert [data["text"] for data in read.events("user_message")] == ["also b"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (user("c", "nowhere", "and?"), "nowhere is not before it in the file"),
        (user("c", "c", "and?"), "c is not before it in the file"),
        (user("c", "b", 5), "expected a text or parts, found a number"),
        ({"type": "assistant", "uuid": "c", "parentUuid": "b", "message": []}, "expected an object, found an array"),
    ],
)
def test_a_bad_line_is_reported_and_its_session_goes_on(tmp_path: Path, line: dict[str, Any], reason: str) -> None:
    read = session(
        tmp_path,
        user("a", None, "go"),
        assistant("b", "a", text("hm")),
        line,
        assistant("d", "c", text("done"), name="m2"),
    )
    assert read.found.branches == 1
    assert read.events("unreadable")[0]["reason"] == reason
    assert read.events("final_answer")[0]["answer"] == "done"
    assert read.rejected.count == 1


def test_a_line_that_is_cut_is_an_event_in_its_place(tmp_path: Path) -> None:
    lines = (SAMPLES / "forked" / "598000e2-6ff0-4ef1-bde9-ecb6b1507a8f.jsonl").read_bytes().splitlines()
    lines[16] = lines[16][:100]
    (tmp_path / "s.jsonl").write_bytes(b"\n".join(lines))
    read = read_traces("claude-code", tmp_path / "s.jsonl")
    assert read.found.branches == 2
    assert [data["position"] for data in read.events("unreadable")] == ["line 17"]
    assert read.rejected.count == 1


def test_an_api_error_that_was_overcome_is_no_end(tmp_path: Path) -> None:
    error = assistant("b", "a", text("API Error: 529"), name="x", model="<synthetic>") | {"isApiErrorMessage": True}
    read = session(tmp_path, user("a", None, "go"), error, user("c", "b", "again"), assistant("d", "c", text("done")))
    assert [line["status"] for line in read.of("end")] == ["answered"]
    assert read.events("run_start")[0]["task"] == "again"
