"""Sessions with sub-agents, continuations and compactions by the real command lines: every response is in one row, after what was sent."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.capture.exchanges import Exchange, Folded, folded
from tests.model_server import ModelServer, Reply, model_server, reply, text, thinking, turns_of, use, whole_reply
from tests.real_agents import installed
from tests.real_agents.agent_runs import RUN_S, Bases, environment
from tests.real_agents.served import served_calls, trained_calls

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
SUMMARY = "We counted the files."


def session(api: ModelServer, folder: Path, *commands: list[str]) -> Folded:
    """Run commands one after the other in one folder; returns their calls as one captured branch."""
    work = folder / "work"
    work.mkdir()
    env = environment(folder / "home", Bases(api.chat_url, api.url))
    for command in commands:
        words = [str(installed.commands() / command[0]), *command[1:]]
        done = subprocess.run(
            words, cwd=work, env=env, capture_output=True, text=True, timeout=RUN_S, stdin=subprocess.DEVNULL, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    return folded([_exchange(api, number) for number, told in sorted(api.replies.items()) if isinstance(told, Reply)])


def _exchange(api: ModelServer, number: int) -> Exchange:
    request, told = api.received[number], api.replies[number]
    assert isinstance(told, Reply)
    response = whole_reply(told, request.protocol, request.body, number)
    return Exchange(
        PATHS[request.protocol],
        json.dumps(request.body).encode(),
        200,
        "application/json",
        json.dumps(response).encode(),
    )


def _said(blocks: list[dict[str, Any]]) -> Reply:
    return reply(blocks, "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn")


async def _claude(body: dict[str, Any], _number: int) -> Reply:
    """A main agent that has a sub-agent count the files; a title and a summary where they are asked for."""
    given = json.dumps(body["messages"][-3:])
    if not body.get("tools"):
        return _said([text("A title")])
    if "followed by a <summary> block" in given:
        return _said([text(f"<summary>{SUMMARY}</summary>")])
    if "Count the files" in json.dumps(body["messages"][0]):
        counting = [text("Counting."), use("Bash", 50, command="ls | wc -l")]
        return _said([counting, [text("There are 0.")]][turns_of(body)])
    if "Thank you" in given or "And now" in given:
        return _said([text("You are welcome.")])
    asked = use("Agent", 1, description="count", prompt="Count the files here.", subagent_type="general-purpose")
    return _said([[thinking("I delegate."), asked], [text("Zero files.")]][turns_of(body)])


def test_sub_agents_and_compactions_of_claude_code_are_conversations_of_their_own(tmp_path: Path) -> None:
    with model_server(_claude) as api:
        made = session(
            api, tmp_path,
            ["claude", "-p", "How many files?", "--allowedTools", "Bash,Agent"],
            ["claude", "-p", "Thank you", "--continue"],
            ["claude", "-p", "/compact", "--continue"],
            ["claude", "-p", "And now?", "--continue"],
        )  # fmt: skip
    assert trained_calls(made.group.ppo) == served_calls(api)
    by_agent: dict[str | None, list[str | None]] = {}
    for row in made.group.sft:
        by_agent.setdefault(row.agent, []).extend(message.content for message in row.messages if message.trained)
    assert sorted(by_agent.values(), key=len) == [
        ["A title"],
        ["Counting.", "There are 0."],
        [None, "Zero files.", "You are welcome.", f"<summary>{SUMMARY}</summary>", "You are welcome."],
    ]
    (main,) = [row for row in made.group.sft if row.main]
    assert any("And now?" in (message.content or "") for message in main.messages)


async def _codex(body: dict[str, Any], _number: int) -> Reply:
    if SUMMARY not in json.dumps(body) and "CHECKPOINT" in json.dumps(body["input"][-1]):
        return _said([text(SUMMARY)])
    turn = turns_of(body)
    return _said(
        [
            [thinking("Look."), text("Counting."), use("exec_command", 1, cmd="ls | wc -l")],
            [text("Zero.")],
            [text("Welcome.")],
        ][turn]
    )


def test_a_session_of_codex_that_is_resumed_is_one_conversation(tmp_path: Path) -> None:
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5"]
    with model_server(_codex) as api:
        where = ["-c", f"openai_base_url={json.dumps(api.chat_url)}"]
        made = session(
            api, tmp_path,
            ["codex", "exec", *flags, *where, "How many files?"],
            ["codex", "exec", "resume", "--last", *flags, *where, "Thank you"],
        )  # fmt: skip
    assert trained_calls(made.group.ppo) == served_calls(api)
    (row,) = made.group.sft
    assert [message.content for message in row.messages if message.trained] == ["Counting.", "Zero.", "Welcome."]
