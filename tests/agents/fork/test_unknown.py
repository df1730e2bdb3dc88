"""An outcome that cannot be known is unknown, with the reason, for every sample task: a build that hangs, a sandbox
that is gone."""

import re
from pathlib import Path

import pytest

from agents.fork.build_verdict import build_verdict
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.subject import Subject
from agents.fork.task_adapter import find_task, load_task, sample_names
from agents.verdicts.meaning import CURRENT, build_meaning
from agents.workspace.files import File
from tests.agents.fork.conftest import sandboxes_of

SUBJECT = Subject("r", 0, 0, "test", "files")
ENDLESS = {
    "csv-table": ("table.py", "while True: pass\n"),
    "name-migration": (
        "migrations/0002_split_name.sql",
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT max(x) FROM r;\n",
    ),
    "notes-api": ("app.py", "while True: pass\n"),
    "price-page": ("page.js", "for (;;);\n"),
}


@pytest.mark.parametrize("name", sample_names())
async def test_a_build_that_hangs_is_unknown(name: str, local: LocalSandboxes) -> None:
    """It is stopped at the task's limit, and the verdict says so."""
    task = load_task(find_task(name))
    limit = task.options.verifier.model_copy(update={"timeout_sec": 2.0})
    task = task._replace(options=task.options.model_copy(update={"verifier": limit}))
    path, text = ENDLESS[name]
    files = {**task.start, path: File(text.encode())}
    verdict = await build_verdict(task, files, await local.create(), SUBJECT)
    assert (verdict.status, build_meaning(verdict, CURRENT).outcome) == ("unknown", "unknown"), verdict
    assert verdict.stderr is not None
    assert "did not end in time" in verdict.stderr.text


@pytest.mark.parametrize("name", sample_names())
async def test_a_sandbox_that_is_gone_is_infra_error(name: str, local: LocalSandboxes) -> None:
    """It says nothing about the branch."""
    task = load_task(find_task(name))
    sandbox = await local.create()
    await sandbox.dispose()
    verdict = await build_verdict(task, task.start, sandbox, SUBJECT)
    assert (verdict.status, build_meaning(verdict, CURRENT).outcome) == ("infra_error", "unknown"), verdict
    assert verdict.stderr is not None
    assert verdict.stderr.text.startswith("verifier: ")


@pytest.mark.parametrize("kind", ["processes", "e2b"])
async def test_tests_that_cannot_run_apart_are_unknown(kind: str, tmp_path: Path) -> None:
    """Where a sandbox cannot keep the work away from its tests there is no verdict, and it says what to do."""
    task = load_task(find_task("csv-table"))
    async with sandboxes_of(kind, tmp_path) as made:
        sandbox = await made.create()
        verdict = await build_verdict(task, task.start, sandbox, SUBJECT)
        await sandbox.dispose()
    assert (verdict.status, verdict.isolation) == ("unknown", None), verdict
    assert verdict.stderr is not None
    assert re.search("allow user namespaces|verifier.sandbox = local", verdict.stderr.text)
