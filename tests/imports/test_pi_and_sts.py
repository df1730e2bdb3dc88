"""Pi and STS: leaves of a tree, forked sessions, ends by the reason to stop, sessions in rows of the Hub."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from agents.importers.traces.rollout_book import Grouping
from tests.agents.formats.rollouts import group_of
from tests.conformance import conformance
from tests.imports.facts import count
from tests.imports.importing import Read, read_traces

SAMPLES = Path(__file__).parent / "samples"


def entry(name: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "id": name, "parentId": parent, "message": {"role": role, "content": content, **more}}


def pi(folder: Path, *entries: dict[str, Any]) -> Read:
    file = folder / "s.jsonl"
    lines = [{"type": "session", "version": 3, "id": "s", "cwd": "/w"}, *entries]
    file.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return read_traces("pi", file)


def sts(folder: Path, *messages: Any, **header: Any) -> Read:
    file = folder / "s.jsonl"
    lines = [
        {"type": "session", "harness": "h", "id": "s", **header},
        *({"type": "message", "message": each} for each in messages),
    ]
    file.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return read_traces("sts", file)


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def test_leaves_of_a_tree_are_branches_that_share_their_first_turn() -> None:
    found = read_traces("auto", conformance("imports", "pi", "forked.jsonl"))
    counts, _, _ = count(found.lines)
    assert {name: counts[name] for name in ("rollouts", "branches", "tool_call", "tool_result", "errors", "final")} == {
        "rollouts": 1, "branches": 2, "tool_call": 5, "tool_result": 5, "errors": 2, "final": 2,
    }  # fmt: skip


def test_the_prompt_of_a_pair_is_exactly_what_two_leaves_share() -> None:
    found = read_traces("pi", conformance("imports", "pi", "forked.jsonl"), grouping=Grouping(required=("good",)))
    (opening,) = found.of("rollout")
    judged = [
        {"type": "check", "rollout_id": opening["rollout_id"], "branch_index": branch, "name": "good", "status": status}
        for branch, status in enumerate(("pass", "fail"))
    ]
    (pair,) = group_of([*found.lines, *judged]).dpo
    assert [message.role for message in pair.prompt] == ["user", "assistant", "tool", "tool"]
    assert [message.content for message in pair.chosen] == [None, "", "Fixed."]
    assert [message.content for message in pair.rejected] == ["I give up."]


def test_sessions_of_the_real_program_are_read() -> None:
    found = read_traces("auto", SAMPLES / "pi")
    counts, ends, tokens = count(found.lines)
    assert counts == {
        "rollouts": 3, "branches": 5, "tool_call": 12, "tool_result": 12, "errors": 4, "texts": 11, "user": 3, "final": 4,
        "pass": 0, "fail": 0,
    }  # fmt: skip
    assert (ends, tokens) == ({"answered": 4, "infra_error": 1}, (2205, 312))
    assert [line["error"][:3] for line in found.of("end") if "error" in line] == ["529"]


def test_rows_of_the_hub_are_the_sessions_in_them() -> None:
    rows = read_traces("auto", SAMPLES / "hub" / "pi.parquet")
    files = read_traces("pi", SAMPLES / "pi" / "tree.jsonl", SAMPLES / "pi" / "overloaded.jsonl")
    assert set(rows.found.formats.values()) == {"pi"}
    assert sorted(line["rollout_id"] for line in rows.of("rollout")) == sorted(
        line["rollout_id"] for line in files.of("rollout")
    )
    assert count(rows.lines) == count(files.lines)


def test_a_row_of_the_hub_says_more_than_its_messages(tmp_path: Path) -> None:
    trace = conformance("imports", "sts", "doc-example.jsonl").read_text()
    lost = [{"role": "user", "content": "what time is it?"}, {"role": "assistant", "content": "it is 15:00 UTC"}]
    row = {
        "harness": "pi",
        "session_id": "abc123",
        "messages": orjson.dumps(lost).decode(),
        "trace": orjson.dumps(trace).decode(),
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    found = read_traces("auto", tmp_path / "t.parquet")
    assert set(found.found.formats.values()) == {"sts"}
    assert len(found.events("tool_call")) == len(found.events("tool_result")) == 1


def test_a_row_with_a_line_that_is_cut_is_told_without_it(tmp_path: Path) -> None:
    trace = conformance("imports", "pi", "linear.jsonl").read_text().splitlines()
    trace[3] = trace[3][:50]
    pq.write_table(
        pa.Table.from_pylist([{"harness": "pi", "session_id": "x", "trace": "\n".join(trace)}]), tmp_path / "t.parquet"
    )
    found = read_traces("pi", tmp_path / "t.parquet")
    assert found.rejected.count >= 1
    assert found.events("unreadable")[0]["position"] == "row 0 line 4"
    assert found.events("final_answer")[0]["answer"] == "Fixed."


@pytest.mark.parametrize(
    ("stop", "status"),
    [("stop", "answered"), ("error", "infra_error"), ("aborted", "aborted"), ("length", "failed"), ("toolUse", None)],
)
def test_a_branch_ends_by_the_reason_to_stop(tmp_path: Path, stop: str, status: str | None) -> None:
    found = pi(tmp_path, entry("a", None, "user", "go"), entry("b", "a", "assistant", text("done"), stopReason=stop))
    assert [line["status"] for line in found.of("end")] == ([] if status is None else [status])


def test_a_compaction_and_the_summary_of_a_branch_are_told(tmp_path: Path) -> None:
    found = pi(
        tmp_path, entry("a", None, "user", "go"), entry("b", "a", "assistant", text("hm")),
        {"type": "compaction", "id": "c", "parentId": "b", "summary": "so far", "firstKeptEntryId": "b"},
        {"type": "branch_summary", "id": "d", "parentId": "c", "summary": "elsewhere", "fromId": "x"},
        entry("e", "d", "user", "on"), entry("f", "e", "assistant", text("done")),
    )  # fmt: skip
    assert [(data["kept"], data["dropped"]) for data in found.events("context_rewritten")] == [(1, 1)]
    assert [data["text"] for data in found.events("context_message")] == ["so far", "elsewhere"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (entry("c", "nowhere", "user", "and?"), "nowhere is not before it in the file"),
        (entry("c", "b", "user", 5), "expected a text or parts, found a number"),
        ({"type": "message", "id": "c", "parentId": "b", "message": 5}, "expected an object, found a number"),
    ],
)
def test_a_bad_entry_is_reported_and_its_session_goes_on(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    found = pi(
        tmp_path,
        entry("a", None, "user", "go"),
        entry("b", "a", "assistant", text("hm")),
        bad,
        entry("d", "c", "assistant", text("done")),
    )
    assert (found.found.branches, found.rejected.count) == (1, 1)
    assert found.events("unreadable")[0]["reason"] == reason
    assert found.events("final_answer")[0]["answer"] == "done"


def test_reasoning_calls_and_results_of_sts_are_told(tmp_path: Path) -> None:
    calls = [{"id": "t", "function": {"name": "ls", "arguments": '{"a":1}'}}]
    found = sts(
        tmp_path, {"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I look.", "reasoningContent": "hm", "toolCalls": calls, "model": "m"},
        {"role": "tool", "toolCallId": "t", "content": "x"}, {"role": "assistant", "content": "done"}, name="title",
    )  # fmt: skip
    assert found.of("rollout")[0]["system_prompt"] == "Be brief."
    assert found.events("reasoning")[0]["text"] == "hm"
    assert (found.events("tool_call")[0]["args"], found.events("tool_result")[0]["callId"]) == ({"a": 1}, "t")
    assert found.events("import_source")[0]["source"]["name"] == "title"


def test_a_session_of_sts_that_ends_with_a_call_has_not_ended(tmp_path: Path) -> None:
    calls = [{"id": "t", "function": {"name": "ls", "arguments": "{}"}}]
    assert (
        sts(tmp_path, {"role": "user", "content": "go"}, {"role": "assistant", "content": "", "toolCalls": calls}).of(
            "end"
        )
        == []
    )


def test_a_line_of_sts_without_a_message_is_reported(tmp_path: Path) -> None:
    found = sts(
        tmp_path,
        {"role": "user", "content": "go"},
        5,
        {"role": "robot", "content": "x"},
        {"role": "assistant", "content": "done"},
    )
    assert found.rejected.count == 2
    assert found.events("final_answer")[0]["answer"] == "done"
