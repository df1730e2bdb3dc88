"""Terminal-Bench: replies of Terminus as calls of a terminal, builds of the tests, ends by their failure mode."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.importers.formats.terminus import read_reply
from tests.imports.importing import Read, read_traces

SAMPLE = Path(__file__).parent / "samples" / "terminal-bench" / "real-run"


def run(folder: Path, logs: dict[str, str] | None = None, **changed: Any) -> Read:
    """Import a run with one trial."""
    result = {
        "id": "r1", "trial_name": "fix.1-of-2.demo", "task_id": "fix", "instruction": "Fix it.", "is_resolved": True,
        "failure_mode": "unset", "parser_results": {"a": "passed"}, "total_input_tokens": 10, "total_output_tokens": 2,
    } | changed  # fmt: skip
    trial = folder / "demo" / "fix" / "fix.1-of-2.demo"
    trial.mkdir(parents=True)
    (folder / "demo" / "run_metadata.json").write_bytes(
        orjson.dumps({"run_id": "demo", "agent_name": "a", "model_name": "m"})
    )
    (trial / "results.json").write_bytes(orjson.dumps(result))
    for name, text in (logs or {}).items():
        place = trial / "agent-logs" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return read_traces("auto", folder / "demo")


def test_a_run_of_terminus_is_a_conversation_with_a_terminal() -> None:
    """The prompt behind commands is their output; behind a reply that could not be read it is the user's."""
    found = read_traces("auto", SAMPLE)
    events = [line["event"] for line in found.of("event")][1:]
    assert [event["event"] for event in events if event["event"] != "model_done"] == [
        "run_start", "assistant_message", "tool_call", "tool_result", "assistant_message", "user_message",
        "assistant_message", "tool_call", "tool_result", "assistant_message", "tool_call", "tool_result", "final_answer",
    ]  # fmt: skip
    assert [each["args"]["commands"] for each in found.events("tool_call")][1] == []  # it waits
    assert found.events("user_message")[0]["text"].startswith("Previous response had parsing errors")
    assert found.found.plain(0)["tokens_in"] == 3982


@pytest.mark.parametrize(
    ("mode", "resolved", "status", "verdicts"),
    [
        ("none", True, "answered", ["success"]),
        ("unset", False, "answered", ["failure"]),
        ("agent_timeout", False, "failed", ["failure"]),
        ("context_length_exceeded", None, "failed", []),
        ("test_timeout", None, "answered", []),
        ("agent_installation_failed", False, "infra_error", []),
        ("unknown_agent_error", False, "infra_error", []),
        ("unknown", False, "infra_error", []),
    ],
)
def test_the_end_and_the_verdict_follow_from_the_failure_mode(
    tmp_path: Path, mode: str, resolved: bool | None, status: str, verdicts: list[str]
) -> None:
    """A harness that broke says nothing about the agent, whatever its results say."""
    found = run(tmp_path, failure_mode=mode, is_resolved=resolved)
    assert [line["status"] for line in found.of("end")] == [status]
    assert [line["status"] for line in found.of("build")] == verdicts


def test_tests_are_counted(tmp_path: Path) -> None:
    """A build of the test stage has the numbers of its tests."""
    (build,) = run(tmp_path, is_resolved=False, parser_results={"a": "passed", "b": "failed"}).of("build")
    assert build["tests"] == {"passed": 1, "failed": 1, "skipped": 0, "total": 2}
    assert build["stage"] == "test"


def test_logs_of_other_agents_are_read_by_their_own_format(tmp_path: Path) -> None:
    """The trial keeps its verdict."""
    said = [{"role": "user", "content": "Fix it."}, {"role": "assistant", "content": "Fixed."}]
    found = run(
        tmp_path, {"sessions/chat.jsonl": orjson.dumps({"messages": said}).decode() + "\n", "noise.json": '{"a":1}'}
    )
    assert [each["answer"] for each in found.events("final_answer")] == ["Fixed."]
    assert [line["status"] for line in found.of("build")] == ["success"]
    assert found.rejected.count == 0


@pytest.mark.parametrize(
    ("text", "words", "commands"),
    [
        (
            '{"state_analysis":"A","explanation":"B","commands":[{"keystrokes":"ls"}],"is_task_complete":true}',
            "A\n\nB",
            1,
        ),
        (
            '<response><analysis>A</analysis><plan>B</plan><commands><keystrokes duration="0.1">ls</keystrokes></commands></response>',
            "A\n\nB",
            1,
        ),
        ('{"analysis":"A","commands":[],"task_complete":true}', "A", None),
        ("no commands", "no commands", None),
    ],
)
def test_replies_are_read_in_all_their_forms(text: str, words: str, commands: int | None) -> None:
    """Terminus 1 and 2, JSON and XML."""
    reply = read_reply(text)
    assert reply.text == words
    assert (None if reply.commands is None else len(reply.commands)) == commands
