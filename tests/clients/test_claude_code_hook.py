"""The hook of Claude Code: fed with what Claude Code really sends (2.1), and, in the long run, called by Claude Code itself."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.gateway_server import Server, serving
from tests.model_server import Reply, model_server, reply, text, use

HOOK = [sys.executable, "-m", "braidstream.claude_code_hook"]
SESSION = {"session_id": "s", "transcript_path": "/t.jsonl", "cwd": "/", "permission_mode": "bypassPermissions"}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def place(server: Server, **more: str) -> dict[str, str]:
    found = {"BRAID_URL": server.url, "BRAID_ROLLOUT": "r", "BRAID_BRANCH": "2"}
    return os.environ | found | {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/r/r/b/2/anthropic"} | more


def tell(event: Any, env: dict[str, str]) -> None:
    """Call the hook as Claude Code does; it says nothing and never fails."""
    given = event if isinstance(event, str) else json.dumps(SESSION | event)
    done = subprocess.run(HOOK, input=given, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_tools_and_the_end_are_recorded(server: Server) -> None:
    """A result, a failure and the end, under the ids that the model gave the calls."""
    env = place(server)
    bash = {"tool_name": "Bash", "tool_input": {"command": "make"}, "duration_ms": 7}
    tell({"hook_event_name": "SessionStart", "source": "startup"}, env)
    tell({"hook_event_name": "PostToolUse", "tool_use_id": "t1", "tool_response": {"stdout": "ok"}, **bash}, env)
    tell({"hook_event_name": "PostToolUseFailure", "tool_use_id": "t2", "error": "Exit code 3", **bash}, env)
    tell({"hook_event_name": "SessionEnd", "reason": "other"}, env)
    (_, call), (_, result), (_, _), (_, failed) = server.events(2)
    assert (call["toolName"], call["args"], call["callId"]) == ("Bash", {"command": "make"}, "t1")
    assert (result["callId"], result["output"]) == ("t1", {"stdout": "ok"})
    assert (failed["callId"], failed["error"]["message"]) == ("t2", "Exit code 3")
    assert server.end(2)["status"] == "answered"


def test_a_session_beside_the_proxy_is_marked_as_not_recorded(server: Server) -> None:
    """Its conversation is nowhere: rows of it would be made up."""
    tell({"hook_event_name": "SessionStart"}, place(server, ANTHROPIC_BASE_URL=""))
    assert server.events(2) == [("content_left_out", {"reason": "not_recorded", "count": 1})]


@pytest.mark.parametrize("given", ["", "no json", "[]", '{"hook_event_name": "SomethingNew"}'])
def test_the_session_goes_on_whatever_the_hook_is_given(server: Server, given: str) -> None:
    """Foreign input is no reason to disturb the agent."""
    tell(given, place(server))
    tell(given, place(server, BRAID_URL="nonsense"))
    assert server.items == {}


async def play(body: dict[str, Any], number: int) -> Reply:
    """One command that works, one that fails, and the answer."""
    del number
    if not any(tool.get("name") == "Bash" for tool in body.get("tools", [])):
        return reply([text("a title")])
    results = json.dumps(body["messages"]).count('"tool_result"')
    commands = ["echo hi", "exit 3"]
    if results < len(commands):
        return reply([use("Bash", results, command=commands[results], description="x")], "tool_use")
    return reply([text("Done.")])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_claude_code_calls_the_hook(server: Server, tmp_path: Path) -> None:
    """The command line as npm installs it, with the settings that the hook prints, against a played API."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm")
    subprocess.run(
        [npm, "install", "--silent", "--no-audit", "--no-fund", "@anthropic-ai/claude-code"], cwd=tmp_path, check=True
    )
    hooks = subprocess.run([*HOOK, "--settings"], capture_output=True, check=True).stdout
    (tmp_path / "hooks.json").write_bytes(hooks)
    (tmp_path / "home").mkdir()
    with model_server(play) as model:
        env = place(server, HOME=str(tmp_path / "home"), ANTHROPIC_API_KEY="sk-x", IS_SANDBOX="1", DISABLE_AUTOUPDATER="1",
                    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", ANTHROPIC_BASE_URL=f"{model.url}")  # fmt: skip
        command = [tmp_path / "node_modules/.bin/claude", "-p", "go", "--settings", tmp_path / "hooks.json"]
        done = subprocess.run(
            [*command, "--permission-mode", "bypassPermissions", "--max-turns", "6"], cwd=tmp_path / "home", env=env,
            capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = [kind for kind, _ in server.events(2)]
    assert kinds == ["content_left_out", "user_message", "tool_call", "tool_result", "tool_call", "tool_result"]
    assert server.events(2)[3][1]["output"]["stdout"] == "hi"
    assert "Exit code 3" in server.events(2)[5][1]["error"]["message"]
    assert server.end(2)["status"] == "answered"
