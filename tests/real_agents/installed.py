"""Agents and SDKs as the registries have them, at pinned versions, installed once into a cache that later runs use again.

Where a registry cannot be reached the tests that need it are skipped, with a sentence.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from streams.cluster.broker import places

NODE = ("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0")
EXPORTER = ("opentelemetry-exporter-otlp-proto-http==1.45.1", "opentelemetry-sdk==1.45.2")
SDKS = {
    "openai": ("openai==3.51.0", "anthropic==2.10.0"),
    "openai-agents": ("openai-agents==0.24.0", "openai==3.51.0"),
    "pydantic-ai": ("pydantic-ai-slim[openai,anthropic]==2.66.0", "openai==3.51.0", "anthropic==2.10.0"),
    "litellm": ("litellm==1.106.2", "mcp"),  # this version imports mcp for every completion with tools
    "claude-agent-sdk": ("claude-agent-sdk==0.2.184",),
    "instrumented-openai": ("openinference-instrumentation-openai==0.1.66", "openai==3.51.0", *EXPORTER),
    "instrumented-anthropic": ("openinference-instrumentation-anthropic==3.1.0", "anthropic==2.10.0", *EXPORTER),
    "instrumented-langgraph": (
        "openinference-instrumentation-langchain==0.1.80", "langgraph==1.2.22", "langchain-openai==1.7.3", *EXPORTER,
    ),
    "instrumented-pydantic-ai": ("pydantic-ai-slim[openai]==2.66.0", "openai==3.51.0", *EXPORTER),
}  # fmt: skip
"""The packages of each environment."""

INSTALL_S = 600


def commands() -> Path:
    """The folder with `claude` and `codex`, as npm installs them."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm to install Claude Code and Codex; these agents were NOT run")
    with _made("node", NODE) as (folder, missing):
        if missing:
            _install(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *NODE], "npm's registry")
    return folder / "node_modules" / ".bin"


def python(name: str) -> Path:
    """The Python of an environment with these SDKs."""
    packages = SDKS[name]
    uv = shutil.which("uv") or str(Path(__file__).parents[2] / ".tools" / "bin" / "uv")
    if not Path(uv).exists():
        pytest.skip("needs uv to install the SDKs; these programs were NOT run")
    with _made(name, packages) as (folder, missing):
        program = folder / "bin" / "python"
        if missing:
            _install([uv, "venv", "-q", "--python", sys.executable, str(folder)], "a Python")
            _install([uv, "pip", "install", "-q", "--python", str(program), *packages], "the Python package index")
    return program


@contextmanager
def _made(name: str, packages: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """The folder for these packages, and whether they are still missing; one process installs at a time."""
    root = places.cache_dir() / "real-agents"
    root.mkdir(parents=True, exist_ok=True)
    folder = root / f"{name}-{sha256(' '.join(packages).encode()).hexdigest()[:12]}"
    whole = folder / ".whole"
    with (root / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if whole.exists():
            yield folder, False
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder, True
        whole.touch()


def _install(words: list[str], source: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, check=False, env=os.environ)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{source} did not answer within {INSTALL_S} s; these agents were NOT run")
    if done.returncode:
        pytest.skip(f"cannot install from {source}; these agents were NOT run: {done.stderr[-300:]}")
