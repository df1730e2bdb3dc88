"""Sizes of installations: the core, each extra beside it, everything, and the client; each really installed into a fresh environment.

    make sizes

Needs uv and the package registry. Versions are those of the lock file; sizes are those of the files, without bytecode. `imports` is
the time that `braid worker`, or the client, takes to import what it needs: the best of three.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "clients" / "python"
MB = 1_000_000
WORKER = "import streams.services.live.loop"
TRACER = "import braidstream"


class Installation(NamedTuple):
    """Installed packages, and a program that is started there."""

    name: str
    wanted: str
    program: str = WORKER


INSTALLATIONS = (
    Installation("braidstream (worker, gateway, proxy)", f"{ROOT}"),
    *(
        Installation(f"braidstream[{extra}]", f"{ROOT}[{extra}]")
        for extra in ("export", "import", "language", "memory", "judge", "fork", "all")
    ),
    Installation("braidstream-client", f"{CLIENT}", TRACER),
    Installation("braidstream-client[topics]", f"{CLIENT}[topics]", "import braidstream.topics"),
)


class Measured(NamedTuple):
    """One environment."""

    bytes: int
    distributions: int
    import_s: float


def measure(installation: Installation, folder: Path, uv: str) -> Measured:
    """Install into a fresh environment and look."""
    python = folder / "bin" / "python"
    _run(uv, "venv", "-q", "--python", sys.executable, str(folder))
    locked = ROOT / "requirements-dev.lock"
    _run(uv, "pip", "install", "-q", "--python", str(python), "-c", str(locked), installation.wanted)
    packages = next((folder / "lib").glob("python*/site-packages"))
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
    took = []
    for _ in range(3):
        began = time.monotonic()
        _run(str(python), "-c", installation.program, cwd=folder)
        took.append(time.monotonic() - began)
    return Measured(size, sum(1 for _ in packages.glob("*.dist-info")), min(took))


def _run(*command: str, cwd: Path | None = None) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
        "BRAID_COMPILED": "no"
    }
    subprocess.run(command, cwd=cwd, env=plain, check=True, capture_output=True)


def main() -> None:
    """Print a line for each installation."""
    local = ROOT / ".tools" / "bin" / "uv"
    uv = shutil.which("uv") or str(local)
    print(f"{'installation':38} {'MB':>7} {'packages':>9} {'imports s':>10}")
    for installation in INSTALLATIONS:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(installation, Path(folder, "env"), uv)
        print(
            f"{installation.name:38} {found.bytes / MB:7.1f} {found.distributions:9} {found.import_s:10.2f}", flush=True
        )


if __name__ == "__main__":
    main()
