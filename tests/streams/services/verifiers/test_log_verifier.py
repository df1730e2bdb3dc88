"""`braid fork --log FILE --verify`: verdicts of the verifiers' own code without a broker, complete after a kill, never doubled."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from agents.fork.subject import Subject, about_of
from agents.fork.task_adapter import load_task
from tests.live import until
from tests.processes import Forked, run_braid
from tests.streams.services.verifiers.test_build_verifier import QUICK, quick_task

SCRIPT = """
[[branch]]
[[branch.turn]]
[[branch.turn.call]]
tool = "write_file"
args.path = "work.txt"
args.content = "good"
[[branch.turn]]
answer = "Good."
[[branch]]
[[branch.turn]]
answer = "Nothing."
"""

CRITERION = """
required = ["build", "criteria"]
[[metadata.braid.criteria]]
name = "has work"
method = "file_exists"
path = "work.txt"
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


async def test_a_killed_runner_completes_its_verdicts_and_is_not_fooled_by_a_forged_one(tmp_path: Path) -> None:
    """SIGKILL when one branch has its verdicts: --resume adds the others once, also the one that a stranger has written."""
    folder, log = (
        quick_task(tmp_path / "quick", QUICK.replace("sleep ${SLEEP:-1}\n", ""), CRITERION),
        tmp_path / "log.ndjson",
    )
    (folder / "script.toml").write_text(SCRIPT)
    env = os.environ | {
        "BRAID_STATE_DIR": str(tmp_path / "state"),
        "BRAID_VERIFIER__CONCURRENCY": "1",
        "BRAID_TRUSTED_VERIFIERS": "local",
    }
    words = ("fork", folder, "--log", log, "--verify", "--json")
    killed = Forked([*words, "--id", "r", "--branches", "2"], env, tmp_path / "fork.log")

    async def some() -> bool:
        kinds = [line["type"] for line in lines(log)] if log.exists() else []
        return kinds.count("end") == 2 and "build" in kinds

    await until(some, "both branches have ended, and one has a verdict")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    written = lines(log)
    first = next(line for line in written if line["type"] == "build")
    kept = [line for line in written if line["type"] not in ("build", "check") or line is first]
    log.write_text(
        "".join(json.dumps(line) + "\n" for line in kept)
    )  # as a kill just behind the first verdict leaves it
    missing = 1 - first["branch_index"]
    end = next(line for line in lines(log) if line["type"] == "end" and line["branch_index"] == missing)
    about = about_of(load_task(folder).digest, end["workspace"]["digest"])
    verdict_id = Subject("r", missing, 0, "braid-build-verifier", about).verdict_id("build")
    forged = {"type": "build", "rollout_id": "r", "branch_index": missing, "verdict_id": verdict_id}
    with log.open("a") as out:
        out.write(json.dumps(forged | {"status": "success" if missing else "failure", "exit_code": 1 - missing}) + "\n")
    for _ in range(2):
        done = run_braid(*words, "--resume", "r", env=env)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["verdicts"] == 0, "a second resume found something to do"
    given = [line for line in lines(log) if line["type"] in ("build", "check") and "signature" in line]
    assert sorted((line["branch_index"], line.get("name", "build")) for line in given) == [
        (branch, name) for branch in (0, 1) for name in ("build", "criteria", "hacks", "has work")
    ]
    counts = json.loads(run_braid("run", log, "--out", tmp_path / "out", "--json", env=env).stdout)
    assert (counts["passes"], counts["fails"], counts["untrusted"]) == (1, 1, 1)
