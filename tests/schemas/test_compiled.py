"""Compiled modules: made from the Python that lies here, beside it, and refused when it has changed."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from multiprocessing import get_context
from pathlib import Path
from zipfile import ZipFile

import pytest

from schemas.compiled import compiled
from tests.plain import plain_copy

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
PROJECT = tomllib.loads(PYPROJECT)
MODULES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
IN_C = (
    "schemas/codec/_avro.c", "agents/ranking/_newton.c", "agents/evidence/_canonical.c", "agents/importers/otlp/_wire.c",
)  # fmt: skip
PACKAGES = ("schemas", "agents", "streams")
used = pytest.mark.skipif(not compiled().modules, reason="nothing is compiled: `make setup`")

_LOOK = """
import json, sys
import agents.rollouts.emission, agents.summarize.branch
from streams.views.machine_checks import check_compiled
modules = [sys.modules[name] for name in ("agents.rollouts.emission", "agents.summarize.branch")]
print(json.dumps([[str(module.__spec__.origin) for module in modules], *check_compiled()[1:]]))
"""


def look(tree: Path = ROOT) -> list[str]:
    """The modules that another process uses which runs in this directory, and what `braid doctor` says there."""
    done = subprocess.run([sys.executable, "-c", _LOOK], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The packages as they are here, compiled modules and all."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("tasks"))
    for library in ROOT.glob("*.so"):
        shutil.copy(library, tmp_path)
    return tmp_path


def test_a_machine_with_a_compiler_has_compiled_modules() -> None:
    """Where there is a compiler, as on any machine that tests, nothing is skipped below."""
    if (shutil.which("cc") is None and not os.environ.get("CI")) or "BRAID_COMPILED" in os.environ:
        pytest.skip("no C compiler, or compiled code is turned off")
    assert compiled().failed == ""
    assert compiled().modules == (*MODULES, *IN_C)


@used
def test_compiled_modules_lie_beside_their_sources(tree: Path) -> None:
    """Wherever the package lies."""
    files, result, *_ = look(tree)
    assert result == "ok"
    assert files == [
        str(tree / f"agents/{name}{EXTENSION_SUFFIXES[0]}") for name in ("rollouts/emission", "summarize/branch")
    ]


@used
@pytest.mark.parametrize("changed", ["agents/rewards/rewards.py", "schemas/base.py", "schemas/codec/_avro.c"])
def test_an_edited_source_is_reported(tree: Path, changed: str) -> None:
    """Also one that is not compiled itself, as schemas/base.py: its types are compiled in."""
    with (tree / changed).open("a") as source:
        source.write("\n")
    _, result, detail, advice = look(tree)
    assert (result, detail) == ("problem", f"compiled from other sources: {changed}")
    assert "make setup" in advice
    assert "make plain" in advice


@used
def test_tests_refuse_modules_compiled_from_other_sources(tree: Path) -> None:
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("v1", "__pycache__"))
    with (tree / "agents/rewards/rewards.py").open("a") as source:
        source.write("\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/schemas/test_retry_after.py"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        "compiled from other sources (agents/rewards/rewards.py has changed): run `make setup`, or `make plain` to test without"
    ]


@used
def test_modules_compiled_for_another_python_are_not_used(tree: Path) -> None:
    """Their files have other names."""
    for file in [file for package in PACKAGES for file in (tree / package).rglob("*.so")]:
        file.rename(file.with_name(file.name.replace(EXTENSION_SUFFIXES[0], ".cpython-299-elsewhere.so")))
    files, result, detail, advice = look(tree)
    assert (files[0], result) == (str(tree / "agents/rollouts/emission.py"), "warning")
    assert detail == "no: Python and fastavro give the same and take longer"
    assert advice.startswith("install a C compiler")


def _origin() -> str:
    from agents.rollouts import emission

    return str(emission.__spec__.origin if emission.__spec__ else None)


@used
def test_processes_that_are_started_use_them_too() -> None:
    with get_context("spawn").Pool(1) as pool:
        assert pool.apply(_origin) == _origin()


def test_without_a_compiler_the_package_is_built_all_the_same(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For any machine, of Python alone, also where compiled modules lie about; and `braid doctor` has the reason."""
    client = Path("clients/python/braidstream/tracer.py")
    (tree / client).parent.mkdir(parents=True)
    for name in (Path("README.md"), Path(".gitignore"), Path("hatch_build.py"), client):
        shutil.copy(ROOT / name, tree / name)
    # One module stands for all: the compiler is asked for the first C file.
    (tree / "pyproject.toml").write_text(
        re.sub(r"(?s)\nmodules = \[.*?\n\]", '\nmodules = ["schemas.numbers"]', PYPROJECT)
    )
    with (tree / "agents/rewards/rewards.py").open("a") as source:
        source.write("\n")
    out = tmp_path_factory.mktemp("out")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out],
        cwd=tree,
        env={name: value for name, value in os.environ.items() if name != "BRAID_COMPILED"} | {"CC": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not compiled: " in done.stdout + done.stderr
    files, result, detail, _ = look(tree)
    assert (files[0], result) == (str(tree / "agents/rollouts/emission.py"), "warning")
    assert "/nonexistent" in detail
    (wheel,) = out.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    names = ZipFile(wheel).namelist()
    pages = {f"streams/views/web/static/{name}" for name in ("view.css", "view.js", "braid.svg")}
    assert pages <= set(names)
    assert "schemas/compiled.json" in names
    assert not [name for name in names if name.endswith(".so")]
    assert not [name for name in names if name.endswith(".ndjson")], "sample data belongs to the tests"
    served = ZipFile(wheel).read("streams/services/gateway/tracer.py.txt")
    assert served == (ROOT / client).read_bytes(), "the gateway serves the client's own file"
    demo = {name.removeprefix("streams/demo/") for name in names if name.startswith("streams/demo/")}
    assert demo == {"__init__.py", "forks.py", "judge.toml", "show.py"}


def test_a_copy_without_compiled_modules_runs(tmp_path: Path) -> None:
    files, result, *_ = look(plain_copy(tmp_path))
    assert (files[0], result) == (str(tmp_path / "agents/rollouts/emission.py"), "warning")


SOURCES = {
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if "tasks" not in path.parts
}


def parsed(module: str) -> ast.Module:
    """The module's syntax. All of them at once would be a million objects in the collector's way, for the whole run."""
    return ast.parse(SOURCES[module].read_text("utf-8"))


def test_every_listed_module_is_there() -> None:
    """Once, and in order, so that a name is found."""
    assert sorted({*MODULES} & {*SOURCES}) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_listed_modules_have_nothing_that_differs_when_compiled(module: str) -> None:
    """No `__file__`; and no generator that closes something after itself: compiled, it is dropped without when it is left early."""
    nodes = list(ast.walk(parsed(module)))
    assert "__file__" not in {node.id for node in nodes if isinstance(node, ast.Name)}
    closing = (ast.With, ast.AsyncWith, ast.Try)
    inside = [each for node in nodes if isinstance(node, closing) for each in ast.walk(node)]
    assert not [node.lineno for node in inside if isinstance(node, ast.Yield | ast.YieldFrom)]


def test_no_compiled_class_has_subclasses_that_are_not_compiled() -> None:
    """Compiled classes refuse them, when one is made. Errors do not."""
    found = []
    for name in SOURCES:
        tree = parsed(name)
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in MODULES
            for alias in node.names
        }
        for node in ast.walk(tree):
            if name not in MODULES and isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)} & imported
                found += [(name, node.name) for base in bases if not base.endswith("Error")]
    assert found == []
