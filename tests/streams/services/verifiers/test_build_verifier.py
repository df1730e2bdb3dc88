"""The build verifier on a real Kafka: verdicts from real test runs, bounded, resumed, and honest about what it cannot know."""

from pathlib import Path

import pytest

from agents.evidence.keys import generate_key, save_key
from agents.fork.sandbox import CommandResult
from agents.fork.sandbox_adapter import LocalSandbox
from agents.fork.subject import Subject, about_of
from agents.fork.task_adapter import find_task, load_task
from agents.rules.emission_rules import RULES
from agents.trust.trusted_keys import TrustedKey
from agents.trust.verdict_signature import is_signed_by
from agents.verdicts.meaning import CURRENT, build_meaning, hack_signals
from schemas.closures import Closure
from schemas.events import Workspace
from schemas.verdicts import BuildVerdict, CheckVerdict
from streams.cluster.config import ConfigError, Settings
from streams.log.topics import BUILD_VERDICTS, CHECK_VERDICTS
from streams.services.verifiers.build import run_build_verifier
from tests.live import records_of
from tests.streams.services.verifiers.running import (
    VerifierProcess,
    branch_of,
    put,
    put_fork,
    solved,
    until_committed,
    until_verdicts,
    verifying,
    with_state,
)

pytestmark = pytest.mark.kafka

QUICK = """#!/bin/sh
sleep ${SLEEP:-1}
printf '<testsuite><testcase/><testcase/></testsuite>' > "$LOGS_DIR/junit.xml"
grep -q good work.txt
"""


def quick_task(folder: Path, script: str = QUICK, options: str = "") -> Path:
    """A task whose tests take a second and need no pytest."""
    (folder / "environment").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "instruction.md").write_text("Write good work.\n")
    (folder / "environment" / "work.txt").write_text("none\n")
    (folder / "tests" / "test.sh").write_text(script)
    (folder / "task.toml").write_text(f"[metadata.braid]\n{options}\n[verifier]\ntimeout_sec = 3.0\n")
    return folder


async def test_reference_passes_broken_fails_and_each_verdict_says_what_was_seen(
    settings: Settings, tmp_path: Path
) -> None:
    """Counts, baseline, protected files, outputs with digests; branches that cannot be decided are left alone."""
    settings = with_state(settings, tmp_path, announce_s=300)
    task = load_task(find_task("csv-table"))
    await put_fork(settings, task, "r1", {0: solved(task), 1: solved(task, "broken/split")})
    await put(settings, [branch_of("r1", 2, None, "infra_error"), branch_of("not-ours", 0, None)])
    async with verifying(run_build_verifier, settings):
        verdicts = {each.branch_index: each for each in await until_verdicts(settings, BUILD_VERDICTS, 2)}
        await until_committed(settings, "build", 4)
    good, bad = verdicts[0], verdicts[1]
    assert (build_meaning(good, CURRENT).outcome, build_meaning(bad, CURRENT).outcome) == ("pass", "fail")
    assert good.tests is not None
    assert (good.tests.passed, good.tests.total, good.baseline_tests) == (13, 13, 13)
    assert (good.stage, good.exit_code, good.protected_paths_intact, good.produced_by) == (
        "test", 0, True, "braid-build-verifier",
    )  # fmt: skip
    assert bad.stdout is not None
    assert "failed" in bad.stdout.text
    assert len(bad.stdout.digest) == 64
    assert hack_signals({"build": good}, RULES[2]) == ()


async def test_a_killed_verifier_is_resumed_without_a_lost_or_doubled_verdict(
    settings: Settings, tmp_path: Path
) -> None:
    """SIGKILL in the middle, twice; at the end every branch has one verdict, and never more ran at once than allowed."""
    settings = with_state(settings, tmp_path, announce_s=300)
    folder = quick_task(tmp_path / "tasks" / "quick")
    task = load_task(folder)
    count = 12
    files = {index: solved_quick("good" if index % 2 else "bad") for index in range(count)}
    await put_fork(settings, task, "r1", files)
    flags = ("--concurrency", "2", "--tasks", str(tmp_path / "tasks"))
    for kill in range(2):
        with VerifierProcess(settings, tmp_path / f"verifier-{kill}.log", "build-verifier", *flags):
            await until_verdicts(settings, BUILD_VERDICTS, 2 + 3 * kill)
    with VerifierProcess(settings, tmp_path / "verifier.log", "build-verifier", *flags) as verifier:
        verdicts = await until_verdicts(settings, BUILD_VERDICTS, count)
        await until_committed(settings, "build", count)
        code, _ = verifier.stop()
    assert code == 0
    verdicts = await records_of(settings, BUILD_VERDICTS)  # type: ignore[assignment]
    assert sorted(each.branch_index for each in verdicts) == list(range(count))
    assert {build_meaning(each, CURRENT).outcome for each in verdicts if each.branch_index % 2} == {"pass"}
    assert {build_meaning(each, CURRENT).outcome for each in verdicts if not each.branch_index % 2} == {"fail"}
    assert list((tmp_path / "sandboxes").glob("*/*")) == []


async def test_a_forged_verdict_and_the_snapshot_of_another_branch_fool_no_verifier(
    settings: Settings, tmp_path: Path
) -> None:
    """The look that a stranger's verdict would spare is made and signed; files that a branch did not leave are not tested for it."""
    key, task = generate_key("builds"), load_task(quick_task(tmp_path / "tasks" / "quick", QUICK.replace("sleep", ":")))
    save_key(key, tmp_path / "builds.pem")
    settings = with_state(
        settings, tmp_path, tasks=(tmp_path / "tasks",), announce_s=300, signing_key=str(tmp_path / "builds.pem")
    ).model_copy(update={"trusted_verifiers": {"builds": TrustedKey(public_key=key.public.hex())}})
    bad, good = await put_fork(settings, task, "r1", {0: solved_quick("bad"), 1: solved_quick("good")})
    assert bad.workspace is not None
    subject = Subject("r1", 0, 0, "braid-build-verifier", about_of(task.digest, bad.workspace.digest))
    forged = {**subject.said("build"), "status": "success", "exit_code": 0}
    await put(settings, [BuildVerdict.model_validate(forged), branch_of("r1", 2, good.workspace)])
    async with verifying(run_build_verifier, settings):
        verdicts = await until_verdicts(settings, BUILD_VERDICTS, 4)
    signed = {each.branch_index: each for each in verdicts if is_signed_by(each, "builds", key.public)}
    assert [build_meaning(signed[index], CURRENT).outcome for index in range(3)] == ["fail", "pass", "unknown"]
    assert signed[0].verdict_id == forged["verdict_id"]
    assert "no runner says that it was taken of branch 2" in signed[2].stderr.text


async def test_a_verifier_whose_key_is_not_trusted_does_not_start(settings: Settings, tmp_path: Path) -> None:
    """It says which line is missing in the configuration, before it looks at anything."""
    settings = with_state(settings, tmp_path).model_copy(
        update={"trusted_verifiers": {"others": TrustedKey(public_key="0" * 64)}}
    )
    with pytest.raises(ConfigError, match=r'does not name the key dev-\w+ of verifier.signing_key.*add "dev-\w+" = '):
        await run_build_verifier(settings)


def solved_quick(text: str) -> dict[str, object]:
    from agents.workspace.files import File

    return {"work.txt": File(f"{text}\n".encode())}


async def test_never_more_at_once_than_allowed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is reached and not passed."""
    settings = with_state(settings, tmp_path, concurrency=3, announce_s=300, tasks=(tmp_path / "tasks",))
    task = load_task(quick_task(tmp_path / "tasks" / "quick"))
    now = most = 0
    plain = LocalSandbox.run

    async def counted(self: LocalSandbox, *given: object, **named: object) -> CommandResult:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        try:
            return await plain(self, *given, **named)  # type: ignore[arg-type]
        finally:
            now -= 1

    monkeypatch.setattr(LocalSandbox, "run", counted)
    await put_fork(settings, task, "r1", {index: solved_quick("good") for index in range(9)})
    async with verifying(run_build_verifier, settings):
        await until_verdicts(settings, BUILD_VERDICTS, 9)
    assert most == 3


async def test_what_cannot_be_known_is_unknown_with_the_reason(settings: Settings, tmp_path: Path) -> None:
    """A hanging build is said to be running, then unknown; so is a branch without snapshot, or whose task is not here."""
    settings = with_state(settings, tmp_path, tasks=(tmp_path / "tasks",), announce_s=0.5)
    hanging = load_task(quick_task(tmp_path / "tasks" / "hanging", "sleep 60\n"))
    elsewhere = load_task(quick_task(tmp_path / "other" / "elsewhere"))
    await put_fork(settings, hanging, "hangs", {0: solved_quick("good")})
    await put_fork(settings, hanging, "lost", {})
    await put(settings, [branch_of("lost", 0, Workspace(uri="snapshot:" + "0" * 64, digest="0" * 64))])
    await put(settings, [branch_of("lost", 1, None, "failed")])
    await put_fork(settings, elsewhere, "elsewhere", {0: solved_quick("good")})
    async with verifying(run_build_verifier, settings):
        found = await until_verdicts(settings, BUILD_VERDICTS, 5)
    assert {build_meaning(each, CURRENT).outcome for each in found} == {"unknown"}
    said = {(each.rollout_id, each.branch_index, each.status): each.stderr.text for each in found}
    assert "running" in said["hangs", 0, "running"]
    assert "did not end in time" in said["hangs", 0, "unknown"]
    assert "not in" in said["lost", 0, "unknown"]
    assert "no snapshot" in said["lost", 1, "unknown"]
    assert "verifier.tasks" in said["elsewhere", 0, "unknown"]


async def test_a_dead_sandbox_is_infra_error_and_the_next_one_is_fine(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox whose holder is killed is replaced once; when the second dies too, that is what the verdict says."""
    settings = with_state(settings, tmp_path, concurrency=1, announce_s=300, tasks=(tmp_path / "tasks",))
    task = load_task(quick_task(tmp_path / "tasks" / "quick"))
    deaths = {"dies": 2, "recovers": 1}
    plain = LocalSandbox.put

    async def dying(self: LocalSandbox, files: dict[str, object]) -> None:
        await plain(self, files)  # type: ignore[arg-type]
        name = getattr(files.get("work.txt"), "content", b"").decode().strip()
        if deaths.get(name, 0):
            deaths[name] -= 1
            assert self._holder is not None
            self._holder.process.kill()

    monkeypatch.setattr(LocalSandbox, "put", dying)
    names = ["dies", "good", "recovers"]
    await put_fork(settings, task, "r1", {index: solved_quick(name) for index, name in enumerate(names)})
    async with verifying(run_build_verifier, settings):
        found = {each.branch_index: each for each in await until_verdicts(settings, BUILD_VERDICTS, 3)}
    assert [found[index].status for index in range(3)] == ["infra_error", "success", "failure"]
    assert "holder" in found[0].stderr.text
    assert build_meaning(found[0], CURRENT).outcome == "unknown"


CRITERIA = """
required = ["criteria"]
[[metadata.braid.criteria]]
name = "has notes"
method = "word_count_min"
path = "NOTES.md"
count = 3
hint = "write notes"
[[metadata.braid.criteria]]
name = "compiles"
method = "command"
command = ["sh", "-n", "run.sh"]
[[metadata.braid.criteria]]
name = "reads well"
method = "llm_judge"
path = "NOTES.md"
rubric = "Is it clear?"
score_min = 6
"""


async def test_criteria_become_check_verdicts_and_settled_rollouts_are_left_alone(
    settings: Settings, tmp_path: Path
) -> None:
    """Each with its hint, and one for all together; without a judge the judged one is unknown, so together is no pass."""
    from agents.workspace.files import File

    folder = quick_task(tmp_path / "tasks" / "notes", options=CRITERIA)
    (folder / "tests" / "test.sh").unlink()
    settings = with_state(settings, tmp_path, tasks=(tmp_path / "tasks",))
    task = load_task(folder)
    good = {"NOTES.md": File(b"three plain words\n"), "run.sh": File(b"echo\n")}
    await put_fork(settings, task, "r1", {0: good, 1: good | {"NOTES.md": File(b"one\n")}})
    await put_fork(settings, task, "old", {0: good})
    await put(settings, [closure("old")])
    async with verifying(run_build_verifier, settings):
        found: list[CheckVerdict] = await until_verdicts(settings, CHECK_VERDICTS, 8)
        await until_committed(settings, "build", 3)
    said = {(each.branch_index, each.name): (each.status, each.hint) for each in found}
    assert len(await records_of(settings, CHECK_VERDICTS)) == 8
    assert {each.rollout_id for each in found} == {"r1"}
    assert said[0, "has notes"] == ("pass", None)
    assert said[0, "compiles"] == ("pass", None)
    assert said[0, "reads well"][0] == "unknown"
    assert said[0, "criteria"][0] == "unknown"
    assert said[1, "has notes"] == ("fail", "write notes: NOTES.md has 1; it needs at least 3 words")
    assert said[1, "criteria"][0] == "fail"


def closure(rollout_id: str) -> Closure:
    """The settling of a rollout."""
    settled = {
        "settled_id": f"{rollout_id}-settled", "rollout_id": rollout_id, "decided_at_ms": 0, "cause": "deadline", "opened": True,
        "branches": (), "config": "{}", "config_digest": "0" * 64,
    }  # fmt: skip
    return Closure.model_validate({"settled": settled})
