"""A hook of Claude Code: tool results, times and the end of a session, beside the calls that the proxy captures.

    env = run.environment()                                      # or set BRAID_URL, BRAID_ROLLOUT, BRAID_BRANCH and ANTHROPIC_BASE_URL
    subprocess.run(["claude", "-p", task, "--settings", "hooks.json"], env=env)

`python -m braidstream.claude_code_hook --settings > hooks.json` prints the settings. The hook never fails, says nothing to Claude Code, and
waits 2 seconds at most. The conversation itself comes from the proxy; without it the session is marked as not recorded, and nothing is
trained on it (`braid import claude-code` reads its log file then).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

from braidstream.tracer import BRANCH_FLUSH_S, Braid, Run

EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "SessionEnd")


def settings(command: str) -> dict[str, Any]:
    """The settings that make Claude Code call the hook."""
    hook = {"hooks": [{"type": "command", "command": command, "timeout": 10}]}
    return {"hooks": {event: [hook] for event in EVENTS}}


def record(told: dict[str, Any], run: Run) -> None:
    """Record what Claude Code tells."""
    event = told.get("hook_event_name")
    if event == "SessionStart" and "/r/" not in os.environ.get("ANTHROPIC_BASE_URL", ""):
        run.event("content_left_out", reason="not_recorded", count=1)
    elif event == "UserPromptSubmit":
        run.user(told.get("prompt", ""))
    elif event in ("PostToolUse", "PostToolUseFailure"):
        end = run.tool_call(told.get("tool_name", ""), told.get("tool_input", {}), told.get("tool_use_id"))
        end(told.get("tool_response"), told.get("error"))
    elif event == "SessionEnd":
        run.end("answered")


def main() -> None:
    """Read one event from standard input."""
    logging.getLogger("braidstream").addHandler(logging.NullHandler())  # Claude Code shows what a hook writes
    if "--settings" in sys.argv:
        print(json.dumps(settings(f"{sys.executable} -m braidstream.claude_code_hook"), indent=2))
        return
    try:
        rollout, branch, attempt = (os.environ.get(f"BRAID_{name}", "") for name in ("ROLLOUT", "BRANCH", "ATTEMPT"))
        if rollout:
            braid = Braid()
            record(json.load(sys.stdin), braid.rollout(rollout).branch(int(branch or 0), int(attempt or 0)))
            braid.flush(BRANCH_FLUSH_S)
    except Exception:  # noqa: BLE001 - the session goes on, whatever happens here
        os._exit(0)
    os._exit(0)  # without the wait of the process's end


if __name__ == "__main__":
    main()
