"""Fresh environments for tests of what is installed beside the client."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "python"


def uv() -> str:
    """The program, as `make setup` finds it."""
    found = shutil.which("uv") or (
        str(ROOT / ".tools" / "bin" / "uv") if (ROOT / ".tools" / "bin" / "uv").exists() else None
    )
    if found is None:
        pytest.skip("needs uv")
    return found


class Environment:
    """A virtual environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.uv = uv()
        subprocess.run([self.uv, "venv", "-q", "--python", sys.executable, folder], check=True)

    def install(self, *wanted: str | Path) -> None:
        """Install packages."""
        command = [self.uv, "pip", "install", "-q", "--python", self.python, *wanted]
        subprocess.run(command, check=True, env=os.environ | {"BRAID_COMPILED": "no"})

    def freeze(self) -> list[str]:
        """The installed distributions."""
        command = [self.uv, "pip", "freeze", "-q", "--python", self.python]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    def run(self, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        """Run Python there, away from the checkout's own packages."""
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | env
        return subprocess.run(
            [self.python, *words], capture_output=True, text=True, timeout=300, check=False, env=plain, cwd=self.folder
        )
