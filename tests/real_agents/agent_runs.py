"""How each agent is started on a task: its own words, its base URL, and no other way to the network."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.real_agents import installed

PROGRAMS = Path(__file__).parent / "programs"
RUN_S = 150
NOWHERE = "http://127.0.0.1:9"
"""A port that nothing listens on, as the proxy for everything that is not on this machine."""


class Bases(NamedTuple):
    """Base URLs, as the SDKs want them."""

    openai: str
    anthropic: str


class Agent(NamedTuple):
    """An agent that can be run."""

    name: str
    command: Callable[[str, Bases], list[str]]
    """The command line for a task."""


def _claude(task: str, _bases: Bases) -> list[str]:
    return [str(installed.commands() / "claude"), "-p", task, "--allowedTools", "Bash"]


def _codex(task: str, bases: Bases) -> list[str]:
    where = f"openai_base_url={json.dumps(bases.openai)}"
    words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5", "-c", where]
    return [str(installed.commands() / "codex"), *words, task]


def _program(environment: str, file: str, *more: str) -> Callable[[str, Bases], list[str]]:
    def command(task: str, _bases: Bases) -> list[str]:
        return [str(installed.python(environment)), str(PROGRAMS / file), task, *more]

    return command


COMMANDS = (Agent("claude", _claude), Agent("codex", _codex))
SDK_PROGRAMS = (
    Agent("openai-chat", _program("openai", "openai_chat.py")),
    Agent("openai-responses", _program("openai", "openai_responses.py")),
    Agent("anthropic", _program("openai", "anthropic_messages.py")),
    Agent("openai-agents", _program("openai-agents", "openai_agents.py")),
    Agent("pydantic-ai-openai", _program("pydantic-ai", "pydantic_ai_chat.py", "openai-chat:m")),
    Agent("pydantic-ai-anthropic", _program("pydantic-ai", "pydantic_ai_chat.py", "anthropic:m")),
    Agent("litellm-openai", _program("litellm", "litellm_chat.py", "openai/m")),
    Agent("litellm-anthropic", _program("litellm", "litellm_chat.py", "anthropic/m")),
    Agent("claude-agent-sdk", _program("claude-agent-sdk", "claude_agent.py")),
)
AGENTS = (*COMMANDS, *SDK_PROGRAMS)


def environment(home: Path, bases: Bases) -> dict[str, str]:
    """The environment of an agent: a home of its own, base URLs, and nothing of the tests' environment but the path."""
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home / ".codex"), "LANG": "C.UTF-8",
        "HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1",
        "OPENAI_BASE_URL": bases.openai, "ANTHROPIC_BASE_URL": bases.anthropic, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_KEY": "sk-played", "CODEX_API_KEY": "sk-played", "ANTHROPIC_API_KEY": "sk-ant-played",
    }  # fmt: skip


def run_agent(agent: Agent, task: str, bases: Bases, home: Path, work: Path) -> str:
    """Run an agent on a task in a folder; returns what it printed. Fails the test where the agent fails."""
    done = subprocess.run(
        agent.command(task, bases), cwd=work, env=environment(home, bases), capture_output=True, text=True,
        timeout=RUN_S, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{agent.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
