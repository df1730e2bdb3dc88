"""The shape of the code: schemas <- agents <- streams, and only adapters know the outside."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

PURE = (
    "rules",
    "rollouts",
    "summarize",
    "verdicts",
    "ranking",
    "rewards",
    "redaction",
    "training",
    "evidence",
    "importers",
    "judge",
    "criteria",
    "memory",
    "models",
    "facts",
    "formats",
    "workspace",
)
ADAPTERS = {
    "agents/evidence/keys.py",
    "agents/judge/scripted_judge_adapter.py",
    "agents/memory/disk_adapter.py",
    "agents/memory/qdrant_adapter.py",
    "agents/models/anthropic_adapter.py",
    "agents/models/http_adapter.py",
    "agents/models/openai_adapter.py",
    "agents/models/scripted_adapter.py",
    "agents/workspace/snapshot_adapter.py",
    "agents/workspace/tree_adapter.py",
}
"""The only modules below streams that may know a disk, a model's service, a compiler or a sandbox."""

OUTSIDE = {
    "faust",
    "aiokafka",
    "httpx",
    "httpx2",
    "fastapi",
    "uvicorn",
    "anthropic",
    "openai",
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

ACYCLIC = ("schemas", "agents", "streams")
"""The roots whose packages must not import each other in a circle."""


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
    outside = OUTSIDE - {"asyncio"} | {"tempfile", "ctypes"}
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


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    """Each folder is a package; a reader of one need not have read those that import it."""
    assert [cycle for root in ACYCLIC for cycle in cycles(package_imports(root))] == []


def test_a_circle_of_packages_is_named_edge_by_edge() -> None:
    """A cycle is reported with the packages in it, so that the edge to turn round can be chosen."""
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}
    assert cycles(graph) == ["a -> b, b -> c, c -> a"]


def package_imports(root: str) -> dict[str, set[str]]:
    """The packages below a root, each with those of the same root that its modules import."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / root).rglob("*.py")):
        if (path.parent / "__init__.py").exists():
            package = ".".join(path.parent.relative_to(ROOT).parts)
            inside = {package_of(name) for name in imported_modules(path) if name.partition(".")[0] == root}
            found.setdefault(package, set()).update(inside - {package})
    return found


def imported_modules(path: Path) -> set[str]:
    """The full names of the modules and packages that a file imports, at its head or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def package_of(name: str) -> str:
    """The package of a module, or of a name in a module: the longest beginning that is a folder."""
    parts = name.split(".")
    while not ROOT.joinpath(*parts).is_dir():
        parts.pop()
    return ".".join(parts)


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """The edges inside each group of packages that reach each other, one line for each group."""
    reached = {package: reachable(graph, package) for package in graph}
    groups = {tuple(sorted(one for one in graph if one in reached[each] and each in reached[one])) for each in graph}
    return [
        ", ".join(f"{one} -> {other}" for one in group for other in sorted(graph[one] & set(group)))
        for group in sorted(groups)
        if group
    ]


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """The packages that imports lead to from one."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found
