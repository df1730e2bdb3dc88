"""What cannot be known is unknown, with the reason, for every sample task: a build that hangs, a sandbox that is gone."""

import pytest

from agents.fork.build_verdict import build_verdict
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.subject import Subject
from agents.fork.task_adapter import find_task, load_task, sample_names
from agents.verdicts.meaning import CURRENT, build_meaning
from agents.workspace.files import File

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


async def test_a_stage_that_fails_is_named_and_what_it_did_to_the_tests_is_undone(local: LocalSandboxes) -> None:
    """Installing and building run the agent's code: protected files and tests are put back before the tests run."""
    task = load_task(find_task("csv-table"))
    evil = "mkdir -p .verifier/tests; echo 'exit 0' > .verifier/tests/test.sh; echo > checks/test_table.py; echo > checks/conftest.py"

    def building(**commands: tuple[str, ...]) -> object:
        braid = task.braid.model_copy(update=commands)
        metadata = task.options.metadata.model_copy(update={"braid": braid})
        return task._replace(options=task.options.model_copy(update={"metadata": metadata}))

    broken = await build_verdict(building(install=("sh", "-c", "exit 3")), task.start, await local.create(), SUBJECT)  # type: ignore[arg-type]
    assert (broken.status, broken.stage, broken.exit_code) == ("failure", "install", 3)
    tricked = await build_verdict(building(build=("sh", "-c", evil)), task.start, await local.create(), SUBJECT)  # type: ignore[arg-type]
    assert (tricked.status, tricked.stage) == ("failure", "test")
    assert tricked.tests is not None
    assert tricked.tests.total == 13
