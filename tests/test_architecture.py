"""The shape of the code: schemas <- agents <- streams, and only adapters know the outside."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

PURE = (
    "rollouts",
    "summarize",
    "verdicts",
    "ranking",
    "rewards",
    "training",
    "evidence",
    "importers",
    "judge",
    "criteria",
    "memory",
)
ADAPTERS = {
    "agents/evidence/keys.py",
    "agents/judge/anthropic_adapter.py",
    "agents/judge/scripted_adapter.py",
    "agents/memory/disk_adapter.py",
    "agents/memory/qdrant_adapter.py",
}
"""The only modules below streams that may know a disk, a model's service, a compiler or a sandbox."""

OUTSIDE = {
    "faust",
    "aiokafka",
    "httpx",
    "fastapi",
    "uvicorn",
    "anthropic",
    "e2b",
    "playwright",
    "qdrant_client",
    "sqlite3",
    "asyncio",
    "socket",
    "subprocess",
    "random",
    "time",
    "os",
    "pathlib",
}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_imports_go_one_way() -> None:
    """schemas imports none of ours, agents imports schemas, streams imports both, nothing imports streams."""
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_decisions_know_no_clock_no_randomness_and_no_io() -> None:
    """The pure cores import nothing of the outside; adapters are named here one by one."""
    guilty = {}
    for folder in PURE:
        for path in sorted((ROOT / "agents" / folder).rglob("*.py")):
            known = imports(path) & OUTSIDE
            if known and str(path.relative_to(ROOT)) not in ADAPTERS:
                guilty[str(path.relative_to(ROOT))] = known
    assert guilty == {}


def test_only_adapters_of_the_fork_runner_know_a_disk_a_service_or_a_process() -> None:
    """The runner waits (asyncio), so it is no pure core; but what it waits for is behind modules that are named adapters."""
    outside = OUTSIDE - {"asyncio"} | {"httpx2", "tempfile", "ctypes"}
    guilty = {
        path.name: imports(path) & outside
        for path in sorted((ROOT / "agents" / "fork").glob("*.py"))
        if imports(path) & outside and not path.stem.endswith("_adapter")
    }
    assert guilty == {}


def test_schemas_know_only_schemas() -> None:
    """Records import no code of ours but each other."""
    for path in (ROOT / "schemas").rglob("*.py"):
        assert not imports(path) & {"agents", "streams"}, path


def test_benchmarks_know_no_tests() -> None:
    """They run on a checkout without tests, and measure the product alone."""
    for path in (ROOT / "benchmarks").rglob("*.py"):
        assert "tests" not in imports(path), path
