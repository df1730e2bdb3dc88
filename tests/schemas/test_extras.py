"""An installation without extras: everything of the core works, and what needs a package says which extra has it."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from schemas.extras import Extra
from tests.agents.formats.rollouts import encoded, mixed
from tests.processes import run_braid

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "export": ("datasketch", "pyarrow"),
    "fork": ("e2b", "playwright", "pytest"),
    "import": ("numpy",),
    "judge": ("anthropic", "openai", "httpx2"),
    "language": ("langdetect",),
    "memory": ("qdrant_client",),
}
ABSENT = [package for each in PACKAGES.values() for package in each]
CHILD = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
for name in sys.argv[1].split(","):
    sys.modules[name] = None
from streams.cli import main
for words in json.loads(sys.stdin.read()):
    out, complaints, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(complaints):
        try:
            main(words.split())
        except SystemExit as ended:
            code = int(ended.code or 0)
    print(json.dumps([words, [code, out.getvalue(), complaints.getvalue()]]))
"""
"""The command line in a process that can import nothing of the extras: one command after the other."""

NEEDS = {
    "export --format verl-parquet --from-dir results --out verl":
        "braid export --format verl-parquet needs pyarrow: install braidstream[export]",
    "run lines.ndjson --out other --format verl-parquet":
        "braid export --format verl-parquet needs pyarrow: install braidstream[export]",
    "verify full": "checking Parquet needs pyarrow: install braidstream[export]",
    "diff full full": "reading Parquet needs pyarrow: install braidstream[export]",
    "import auto lines.ndjson --check": "braid import needs numpy: install braidstream[import]",
    "fork csv-table --branches 1 --log f.ndjson": "a local sandbox needs pytest: install braidstream[fork]",
    "fork csv-table --branches 1 --log f.ndjson --sandbox e2b": "--sandbox e2b needs e2b: install braidstream[fork]",
    "fork csv-table --branches 1 --log f.ndjson --model openai --model-name m --base-url http://127.0.0.1:9":
        "asking m by the protocol openai needs openai: install braidstream[judge]",
    "memory search words": "memory.qdrant needs qdrant_client: install braidstream[memory]",
}  # fmt: skip
"""Commands, and the sentence that each ends with."""

WORK = (
    "run lines.ndjson --out results --json",
    "export --format trl-dpo --from-dir results --out dpo",
    "verify dpo",
)
"""Commands of the core."""

Done = dict[str, tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines, their results, and a dataset in Parquet that a full installation made."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "lines.ndjson").write_bytes(encoded(mixed("r1")))
    for words in ("run lines.ndjson --out whole", "export --format verl-parquet --from-dir whole --out full"):
        assert run_braid(*words.split(), cwd=folder).returncode == 0
    return folder


@pytest.fixture(scope="module")
def done(folder: Path) -> Done:
    """Exit code, output and complaints of every command."""
    env = os.environ | {
        "PYTHONPATH": str(ROOT), "BRAID_MEMORY__QDRANT": "http://127.0.0.1:9", "E2B_API_KEY": "e2b_0",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, ",".join(ABSENT)], input=json.dumps([*WORK, *NEEDS]), cwd=folder, env=env,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return dict(map(json.loads, ran.stdout.splitlines()))


def test_the_extras_of_pyproject_are_those_that_errors_name() -> None:
    """`all` has each of them, and the packages of this test are theirs."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert listed.keys() - {"all", "proxy"} == {*get_args(Extra)} == PACKAGES.keys()
    assert listed["all"] == [f"braidstream[{','.join(sorted(listed.keys() - {'all'}))}]"]
    for extra, packages in PACKAGES.items():
        for package in packages:
            assert any(each.startswith(package.replace("_", "-")) for each in listed[extra]), package


def test_services_import_nothing_of_an_extra() -> None:
    """Neither do they need it, nor pay for it where it is installed."""
    modules = (
        "streams.services.live.loop, streams.services.gateway.app, streams.services.judge, streams.jobs.replay.replay"
    )
    code = f"import sys, {modules}\nprint(sorted({{*{ABSENT}, 'scipy'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("words", WORK)
def test_rows_are_made_exported_and_verified_without_extras(done: Done, words: str) -> None:
    """JSON lines need nothing."""
    code, _, complaints = done[words]
    assert code == 0, complaints


@pytest.mark.parametrize("words", NEEDS)
def test_a_missing_package_is_one_sentence(done: Done, words: str) -> None:
    """It names the package and the extra; there is no traceback."""
    code, _, complaints = done[words]
    assert code == 1
    assert complaints.splitlines()[-1].endswith(NEEDS[words])


def test_nothing_is_begun_that_cannot_be_finished(done: Done, folder: Path) -> None:
    """The commands that were refused left no directory, and did not fold the lines first."""
    assert done
    assert {path.name for path in folder.iterdir()} & {"verl", "other"} == set()
