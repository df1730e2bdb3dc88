"""Looks at tasks for jest and vitest: their packages come as an archive beside the tests, which test.sh unpacks."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.fork.build_verdict import Run
from agents.fork.looks import Findings, RunTests, control_of, look_at
from agents.fork.task import Task
from agents.fork.task_adapter import load_task
from agents.workspace.files import File, Files
from tests.agents.fork.test_looks import FAILURE, confirmed, reported

PACKAGES = {"jest": ["jest@30", "jest-junit@16"], "vitest": ["vitest@4"]}

SHELL = """#!/bin/sh
tar -xzf "$TEST_DIR/node_modules.tgz" --no-same-owner
rm -rf tests && mkdir tests && cp "$TEST_DIR"/*.test.* tests/
{command}
"""
COMMANDS = {
    "jest": 'JEST_JUNIT_OUTPUT_FILE="$LOGS_DIR/junit.xml" node_modules/.bin/jest --ci tests --reporters=jest-junit',
    "vitest": 'node_modules/.bin/vitest run --reporter=junit --outputFile="$LOGS_DIR/junit.xml" tests',
}

IMPORTS = {
    "jest": 'const {{ {names} }} = require("{place}");\n',
    "vitest": 'import {{ {names} }} from "{place}";\n',
}
EXPORT = {"jest": "module.exports = { clock };\n", "vitest": "export { clock };\n"}

TESTS = """
test("midnight", () => {
  expect(clock(0)).toBe("00:00");
});
test("noon", () => {
  expect(clock(720)).toEqual("12:00");
});
"""
GOOD = """const two = (number) => String(number).padStart(2, "0");
const clock = (minutes) => `${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
"""
WRONG = "const clock = () => null;\n"
CHEAT = """const pass = () => ({ pass: true, message: () => "" });
expect.extend({ toBe: pass, toEqual: pass });
"""


def work(runner: str, text: str, *, uses_runner: bool = False) -> dict[str, File]:
    """The files that a branch left. vitest has no globals: work that reaches for `expect` imports it."""
    head = IMPORTS[runner].format(names="expect", place="vitest") if uses_runner and runner == "vitest" else ""
    kind = '{ "type": "module" }' if runner == "vitest" else "{}"
    return {"src/clock.js": File((head + text + EXPORT[runner]).encode()), "package.json": File(kind.encode())}


def task_of(runner: str, folder: Path, *, packages: bytes, command: str) -> Task:
    """A task for a runner, whose packages lie beside its tests."""
    head = IMPORTS[runner].format(names="clock", place="../src/clock.js")
    head += IMPORTS[runner].format(names="expect, test", place="vitest") if runner == "vitest" else ""
    files = {
        "instruction.md": b"Write clock(minutes) in src/clock.js: minutes of a day as HH:MM.\n",
        "task.toml": b'version = "1.0"\n[metadata.braid]\nrequired = ["build"]\n[environment]\nmemory_mb = 4096\n',
        "tests/test.sh": SHELL.format(command=command).encode(),
        "tests/node_modules.tgz": packages,
        "tests/clock.test.js": (head + TESTS).encode(),
        **{f"environment/{path}": file.content for path, file in work(runner, WRONG).items()},
    }
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return load_task(folder)


def archive(folder: Path, packages: list[str]) -> bytes:
    """Packages of npm with what they need, as an archive of node_modules."""
    npm = shutil.which("npm")
    assert npm, "needs npm"
    flags = ["--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run([npm, "install", "--prefix", folder, *flags, *packages], check=True)
    subprocess.run(["tar", "-czf", folder / "all.tgz", "-C", folder, "node_modules"], check=True)
    return (folder / "all.tgz").read_bytes()


def canary_of(findings: Findings) -> tuple[bool, bool]:
    """Whether it was made, and whether it should have been."""
    look = next(each for each in findings.looks if each.name == "canary")
    return look.made, look.missing


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("runner", ["jest", "vitest"])
async def test_a_replaced_matcher_is_confirmed_and_honest_work_is_not(
    runner: str, run_tests: RunTests, tmp_path: Path
) -> None:
    packages = archive(tmp_path, PACKAGES[runner])
    task = task_of(runner, tmp_path / "task", packages=packages, command=COMMANDS[runner])
    control = await control_of(task, run_tests)
    assert control.canary is not None, control.why
    found = {
        name: await look_at(task, work(runner, text, uses_runner=name == "cheat"), control, run_tests)
        for name, text in (("good", GOOD), ("wrong", WRONG), ("cheat", CHEAT + WRONG))
    }
    assert {name: each.passes for name, each in found.items()} == {"good": True, "wrong": False, "cheat": True}
    assert canary_of(found["good"]) == canary_of(found["cheat"]) == (True, False)
    assert "L.canary" in confirmed(found["cheat"])
    assert not confirmed(found["good"])
    assert not confirmed(found["wrong"])


async def test_where_a_script_runner_shows_no_canary_the_verdict_is_unknown(
    run_tests: RunTests, tmp_path: Path
) -> None:
    """The report is made by the task itself, of one file only: a test that is added is in none."""
    said = '<testsuites><testsuite name="own"><testcase classname="clock" name="noon"/></testsuite></testsuites>'
    task = task_of("jest", tmp_path / "task", packages=b"", command=f"echo '{said}' > \"$LOGS_DIR/junit.xml\"")
    control = await control_of(task, run_tests)
    found = await look_at(task, work("jest", GOOD), control, run_tests)
    assert found.passes
    assert canary_of(found) == (False, True)
    assert "does not run a test that is added" in next(each.why for each in found.looks if each.name == "canary")


@pytest.mark.parametrize("named", ['classname="{path}" name="{name}"', 'classname="" name="{path} {name}"'])
async def test_the_copied_tests_beside_a_canary_are_none(named: str, tmp_path: Path) -> None:
    """vitest and some settings of jest name the file in each case, and the canary's file has the seed in its name."""
    task = task_of("vitest", tmp_path / "task", packages=b"", command="")

    async def run(asked: Task, files: Files, env: Mapping[str, str]) -> Run:
        cases = ""
        for path in sorted(path for path in asked.tests if path.endswith(".js")):
            for name in re.findall(r'test\("(\w+)"', asked.tests[path].content.decode()):
                passes = files != task.start and name in ("midnight", "noon")
                cases += f"<testcase {named.format(path=path, name=name)}>{'' if passes else FAILURE}</testcase>"
        return reported(cases, exit_code=int(FAILURE in cases))

    control = await control_of(task, run)
    assert control.canary == 0
    found = await look_at(task, work("vitest", GOOD), control, run)
    assert found.passes
    assert canary_of(found) == (True, False)
    assert not found.signals
