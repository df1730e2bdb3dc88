"""The compiled core: made of the Python that lies here, or not used at all."""

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from multiprocessing import get_context
from pathlib import Path
from zipfile import ZipFile

import pytest

from schemas.compiled import VARIABLE, core

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CORE = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["core"]
PACKAGES = ("schemas", "agents", "streams")
used = pytest.mark.skipif(core().state != "used", reason=f"the compiled core is {core().state}: `make setup`")

_LOOK = """
import json, sys
from schemas.compiled import core
import agents.rollouts.emission, agents.summarize.branch
from streams.views.machine_checks import check_compiled
modules = [sys.modules[name] for name in ("agents.rollouts.emission", "agents.summarize.branch")]
files = [str(module.__spec__.origin) for module in modules]
print(json.dumps([core().state, core().why, files, *check_compiled()[1:]]))
"""


def look(tree: Path = ROOT, **variables: str) -> list[str]:
    """What another process uses that runs what lies in this directory, and what `braid doctor` says there."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | variables
    done = subprocess.run(
        [sys.executable, "-c", _LOOK], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The packages as they are here, compiled modules and all."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("tasks"))
    return tmp_path


def test_a_machine_with_a_compiler_has_the_compiled_core() -> None:
    """Where there is a compiler, as on any machine that tests, nothing is skipped below."""
    if (shutil.which("cc") is None and not os.environ.get("CI")) or VARIABLE in os.environ:
        pytest.skip("no C compiler, or compiled code is turned off")
    assert (core().state, core().why) == ("used", "")
    assert core().modules == {*CORE}


@used
def test_what_was_compiled_of_these_sources_is_used(tree: Path) -> None:
    """Its modules come from the directory of the core, wherever the package lies."""
    state, _, files, result, *_ = look(tree)
    assert (state, result) == ("used", "ok")
    assert all(file.startswith(f"{tree}/schemas/_core/") and file.endswith(EXTENSION_SUFFIXES[0]) for file in files)


@used
@pytest.mark.parametrize("changed", ["agents/rewards/rewards.py", "schemas/base.py"])
def test_an_edited_source_turns_all_of_it_off(tree: Path, changed: str) -> None:
    """Also one that is not compiled itself, as schemas/base.py: what is compiled was made for its types."""
    with (tree / changed).open("a") as source:
        source.write("\n")
    state, why, files, result, detail, advice = look(tree)
    assert (state, why) == ("of other sources", changed)
    assert files == [str(tree / "agents/rollouts/emission.py"), str(tree / "agents/summarize/branch.py")]
    assert result == "warning"
    assert detail.startswith("not the core: ")
    assert changed in detail
    assert "make setup" in advice


@used
def test_what_was_compiled_for_another_python_is_not_there(tree: Path) -> None:
    """Its files have other names."""
    for file in (tree / "schemas/_core").iterdir():
        file.rename(file.with_name(file.name.replace(EXTENSION_SUFFIXES[0], ".cpython-299-elsewhere.so")))
    state, _, files, result, detail, advice = look(tree)
    assert (state, files[0], result) == ("missing", str(tree / "agents/rollouts/emission.py"), "warning")
    assert detail.startswith("not the core: ")
    assert advice.startswith("install a C compiler")


@used
def test_a_library_that_cannot_be_loaded_is_not_used(tree: Path) -> None:
    """As one that was copied from a machine with another C library."""
    (tree / "schemas/_core" / f"braid_core__mypyc{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    state, why, files, *_ = look(tree)
    assert (state, files[0]) == ("does not load", str(tree / "agents/rollouts/emission.py"))
    assert "braid_core__mypyc" in why


@pytest.mark.parametrize("value", ["no", "Off "])
def test_a_variable_turns_compiled_code_off(value: str) -> None:
    """Also what is written in C: for those who debug."""
    state, _, files, result, detail, advice = look(BRAID_COMPILED=value)
    assert (state, files[0], result) == ("off", str(ROOT / "agents/rollouts/emission.py"), "warning")
    assert (detail, advice) == ("BRAID_COMPILED says that Python does everything", "unset BRAID_COMPILED")


def _state() -> tuple[str, str]:
    from agents.rollouts import emission

    return core().state, str(emission.__spec__.origin if emission.__spec__ else None)


@used
def test_processes_that_are_started_use_it_too() -> None:
    """They begin with an import of their own."""
    with get_context("spawn").Pool(1) as pool:
        assert pool.apply(_state) == _state()


def test_without_a_compiler_the_package_is_built_all_the_same(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For any machine, of Python alone, also where compiled modules lie about; and it says why."""
    for name in ("pyproject.toml", "README.md", ".gitignore"):
        shutil.copy(ROOT / name, tree)
    with (tree / "agents/rewards/rewards.py").open("a") as source:
        source.write("\n")
    out = tmp_path_factory.mktemp("out")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out],
        cwd=tree,
        env={name: value for name, value in os.environ.items() if name != VARIABLE} | {"CC": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Python will do what the compiled core would do faster, because this failed" in done.stdout + done.stderr
    state, why, _, _, detail, _ = look(tree)
    assert (state, why) == ("missing", "/nonexistent")
    assert detail.endswith("(/nonexistent)")
    (wheel,) = out.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    names = ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith(".so") or "_core" in name]
    assert not [name for name in names if name.endswith(".ndjson")], "sample data belongs to the tests"
    demo = {name.removeprefix("streams/demo/") for name in names if name.startswith("streams/demo/")}
    assert demo == {"__init__.py", "forks.py", "judge.toml", "show.py"}


SOURCES = {
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): ast.parse(path.read_text("utf-8"))
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if "tasks" not in path.parts
}


def test_every_module_of_the_core_is_there() -> None:
    """Once, and in order, so that a name is found."""
    assert sorted({*CORE} & {*SOURCES}) == CORE


@pytest.mark.parametrize("module", CORE)
def test_modules_of_the_core_have_nothing_that_differs_when_compiled(module: str) -> None:
    """No `__file__`; and no generator that closes something after itself: compiled, it is dropped without when it is left early."""
    nodes = list(ast.walk(SOURCES[module]))
    assert "__file__" not in {node.id for node in nodes if isinstance(node, ast.Name)}
    closing = (ast.With, ast.AsyncWith, ast.Try)
    inside = [each for node in nodes if isinstance(node, closing) for each in ast.walk(node)]
    assert not [node.lineno for node in inside if isinstance(node, ast.Yield | ast.YieldFrom)]


def test_no_class_of_the_core_has_subclasses_that_are_not_compiled() -> None:
    """Compiled classes refuse them, when one is made. Errors do not."""
    found = []
    for name, tree in SOURCES.items():
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in CORE
            for alias in node.names
        }
        for node in ast.walk(tree):
            if name not in CORE and isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)} & imported
                found += [(name, node.name) for base in bases if not base.endswith("Error")]
    assert found == []
