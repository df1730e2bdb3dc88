"""`braid fork` as people run it: real processes, killed and resumed, forked from the middle, and what the worker makes of it."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.errors import BraidError
from schemas.events import AgentEvents
from schemas.lifecycle import Lifecycle
from streams.cli import app
from streams.cluster.config import Settings
from streams.log.topics import AGENT_EVENTS, LIFECYCLE
from tests.fork_kills import Killed, kill_and_resume
from tests.live import records_of
from tests.model_server import Said, model_server, refusal, reply, text, thinking, turns, use
from tests.processes import run_braid


def braid(*words: str, env: dict[str, str] | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_braid(*words, env=os.environ | (env or {}))
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"BRAID_STATE_DIR": str(tmp_path / "state")}


@pytest.mark.timeout(300)
async def test_killed_at_random_moments_and_resumed(tmp_path: Path) -> None:
    """SIGKILL whenever: after --resume every branch has ended once, attempts are not mixed, nothing is left over."""
    killed, chance = Killed(tmp_path, None), random.Random(11)
    for number in range(2):
        await kill_and_resume(killed, f"r{number}", chance)


@pytest.mark.kafka
@pytest.mark.timeout(300)
async def test_killed_and_resumed_on_kafka(settings: Settings, tmp_path: Path) -> None:
    """The same on Kafka; the rollout is on the log before its first branch."""
    killed = Killed(tmp_path, settings)
    await kill_and_resume(killed, "k", random.Random(3))
    opened = [record for record in await records_of(settings, LIFECYCLE) if isinstance(record, Lifecycle)]
    assert [one.opened.rollout_id for one in opened if one.opened] == ["k"]


def test_a_finished_rollout_has_nothing_to_resume_and_an_id_is_used_once(tmp_path: Path, state: dict[str, str]) -> None:
    """Resuming again does nothing; the same id again, an unknown one and another task are refused with what to do."""
    log = str(tmp_path / "log.ndjson")
    done = braid("fork", "csv-table", "--branches", "2", "--id", "r", "--log", log, env=state)
    assert "Nothing has verified these branches yet" in done.stdout
    assert f"`braid fork csv-table --resume r --log {log} --verify`" in done.stdout
    before = Path(log).read_bytes()
    assert "nothing was left to do" in braid("fork", "csv-table", "--resume", "r", "--log", log, env=state).stdout
    assert "--resume it" in braid("fork", "csv-table", "--id", "r", "--log", log, env=state, code=1).stderr
    assert "--id x" in braid("fork", "csv-table", "--resume", "x", "--log", log, env=state, code=1).stderr
    assert "this is notes-api" in braid("fork", "notes-api", "--resume", "r", "--log", log, env=state, code=1).stderr
    assert Path(log).read_bytes() == before


def test_on_kafka_verdicts_are_not_the_runners_business(state: dict[str, str]) -> None:
    """--verify names the processes that have the role, before anything is written."""
    kafka = {"BRAID_KAFKA": "127.0.0.1:9"}
    assert "`braid build-verifier`" in braid("fork", "csv-table", "--verify", env=state | kafka, code=1).stderr


def test_a_fork_from_the_middle_shares_its_beginning(tmp_path: Path, state: dict[str, str]) -> None:
    """The turns up to the seq are in every branch as they were, the workspace is as it was, and DPO prompts hold them."""
    log = tmp_path / "log.ndjson"
    braid("fork", "csv-table", "--branches", "3", "--id", "a", "--log", str(log), env=state)
    cut = next(
        line["seq"] for line in lines(log) if line["type"] == "event" and line["branch_index"] == 2
        and line["event"]["data"].get("callId") == "call_2_1" and line["event"]["event"] == "tool_result"
    )  # fmt: skip
    script = tmp_path / "on.toml"
    script.write_text(ON)
    words = (
        "--branches",
        "2",
        "--id",
        "b",
        "--fork-from",
        f"a/2@{cut + 2}",
        "--script",
        str(script),
        "--log",
        str(log),
    )
    braid("fork", "csv-table", *words, env=state)
    old = [
        line["event"]["data"]
        for line in lines(log)
        if line["rollout_id"] == "a" and line.get("branch_index") == 2 and "seq" in line
    ]
    for branch in (0, 1):
        new = [
            line["event"]
            for line in lines(log)
            if line["rollout_id"] == "b" and line.get("branch_index") == branch and "seq" in line
        ]
        assert [event["data"] for event in new[: cut + 1]] == old[: cut + 1]
        assert new[cut + 1]["event"] == "status"
        assert new[cut + 1]["data"]["phase"] == "prefix_replayed"
        shown = next(event for event in new[cut + 1 :] if event["event"] == "tool_result")
        assert "quote is never closed" in shown["data"]["output"], "the workspace is not as it was"

    verdicts = [
        {"type": "build", "rollout_id": "b", "branch_index": branch, "status": status, "exit_code": branch}
        for branch, status in enumerate(("success", "failure"))
    ]
    with log.open("ab") as more:
        more.writelines(orjson.dumps(line) + b"\n" for line in verdicts)
    braid("run", str(log), "--out", str(tmp_path / "out"))
    [pair] = [row for row in lines(tmp_path / "out" / "dpo.jsonl") if row["rollout_id"] == "b"]
    calls = [call["function"]["name"] for message in pair["prompt"] for call in message.get("tool_calls") or []]
    assert calls == ["read_file", "read_file", "write_file", "run", "run", "run"], (
        "the prompt is not the shared beginning"
    )
    assert [message["content"] for message in pair["chosen"]] == ["Branch 0 is done."]
    branches = [row for row in lines(tmp_path / "out" / "branches.jsonl") if row["rollout_id"] == "b"]
    assert all(row["observed"] == "summarized" and row["workspace"]["digest"] for row in branches)


ON = """
[[shared]]
[[shared.call]]
tool = "list_files"
args.path = "."
[[shared]]
[[shared.call]]
tool = "list_files"
args.path = "."
[[shared]]
[[shared.call]]
tool = "list_files"
args.path = "."
[[shared]]
[[shared.call]]
tool = "run"
args.command = "grep -n 'never closed' table.py"
[[branch]]
[[branch.turn]]
answer = "Branch 0 is done."
[[branch]]
[[branch.turn]]
answer = "Branch 1 is done."
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_place_that_cannot_be_forked_from_is_refused(tmp_path: Path, state: dict[str, str]) -> None:
    """A place that is not one, that is too early, or that is unknown: said, and nothing is written."""
    log = tmp_path / "log.ndjson"
    braid("fork", "csv-table", "--branches", "1", "--id", "a", "--log", str(log), env=state)
    before = log.read_bytes()
    for place, says in (
        ("a/0", "ROLLOUT/BRANCH@SEQ"),
        ("a/0@2", "a later seq"),
        ("a/7@9", "no branch 7"),
        ("z/0@9", "no branch"),
    ):
        done = braid("fork", "csv-table", "--id", "b", "--fork-from", place, "--log", str(log), env=state, code=1)
        assert says in done.stderr
    assert log.read_bytes() == before


def test_ctrl_c_ends_the_branches_as_aborted(tmp_path: Path, state: dict[str, str]) -> None:
    """They end on the log with their reason; no sandbox is left."""
    killed = Killed(tmp_path, None)
    running = killed.start("c", "--id", "c")
    log = tmp_path / "c.ndjson"
    while not log.exists() or b"tool_call" not in log.read_bytes():
        time.sleep(0.05)
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    ends = [line for line in lines(log) if line["type"] == "end"]
    assert len(ends) == 4
    assert {line["status"] for line in ends} == {"aborted"}
    assert list((tmp_path / "state" / "sandboxes").iterdir()) == []
    assert killed.strays() == []


def test_without_a_broker_it_writes_a_file_and_says_so(tmp_path: Path, state: dict[str, str]) -> None:
    """No Kafka: the lines go to a file named after the rollout."""
    done = run_braid(
        "fork", "price-page", "--branches", "1", "--id", "p", "--temperature", "0.2,0.9", "--seed", "4",
        cwd=tmp_path, env={**os.environ, **state, "BRAID_KAFKA": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "writing to p.ndjson" in done.stderr
    first = lines(tmp_path / "p.ndjson")
    assert first[0]["labels"] | {"temperatures": "0.2,0.9", "seed": "4", "task": "price-page"} == first[0]["labels"]
    assert first[1]["temperature"] == 0.2


@pytest.mark.kafka
async def test_slices_are_written_while_a_branch_runs(settings: Settings, tmp_path: Path) -> None:
    """On Kafka, turn by turn: each turn's calls before their results, and the end with the snapshot last."""
    killed = Killed(tmp_path, settings)
    done = killed.start("s", "--id", "s")
    done.communicate(timeout=60)
    assert done.returncode == 0
    slices = [
        one
        for one in await records_of(settings, AGENT_EVENTS)
        if isinstance(one, AgentEvents) and one.branch_index == 0
    ]
    shape = [[event.event for event in one.events] for one in slices]
    first = ["step_start", "message", "message", "message", "model_call", "model_done", "tool_call"]
    assert shape[:3] == [["run_start"], first, ["tool_result"]], "two messages were sent, and one came back"
    assert ["step_start", "message", "model_call", "error_recovery"] in shape, (
        "a call that failed is told before the next"
    )
    assert slices[-1].workspace is not None
    assert (slices[-1].ended, slices[-1].status, shape[-1][-1]) == (True, "answered", "final_answer")


def test_a_whole_fork_over_chat_completions(tmp_path: Path, state: dict[str, str]) -> None:
    """Several turns, parallel calls, a busy service and a cut stream: every branch answers, and rows are made of it."""
    script = turns(
        [thinking("Hm."), text("Looking."), use("read_file", 1, path="table.py"), use("list_files", 2, path=".")],
        [use("write_file", 3, path="notes.txt", content="seen"), use("run", 4, command="cat notes.txt")],
        [text("Done: the notes are written and read back.")],
    )

    async def play(body: dict[str, Any], number: int) -> Said:
        if number == 1:
            return refusal(429, "rate_limit_error", retry_after="0")
        return reply([text("Do")], cut_after=2) if number == 3 else await script(body, number)

    log = tmp_path / "log.ndjson"
    with model_server(play) as api:
        where = ("--model", "openai", "--base-url", api.chat_url, "--model-name", "served", "--log", str(log))
        done = braid("fork", "csv-table", "--branches", "2", "--seed", "7", "--id", "c", *where, "--json", env=state)
    assert json.loads(done.stdout.splitlines()[-1])["answered"] == 2
    assert {(body["model"], body["stream"]) for body in api.bodies} == {("served", True)}
    assert {body["seed"] for body in api.bodies} == {7, 8}
    events = [line["event"] for line in lines(log) if line["type"] == "event"]
    kinds = Counter(event["event"] for event in events)
    assert (kinds["tool_call"], kinds["tool_result"], kinds["final_answer"]) == (8, 8, 2)
    troubles = sorted(event["data"]["kind"] for event in events if event["event"] == "error_recovery")
    assert troubles == ["cut_stream", "rate_limited"]
    assert kinds["model_done"] + len(troubles) == api.calls == 8
    out = tmp_path / "out"
    braid("run", str(log), "--out", str(out), env=state)
    branches = [json.loads(line) for line in (out / "branches.jsonl").read_text().splitlines()]
    assert [(each["status"], each["agent"]["model"], each["seed"]) for each in branches] == [
        ("answered", "served", 7), ("answered", "served", 8),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("no-such-task",), "the samples are"),
        (("csv-table", "--temperature", "hot"), "expected numbers"),
        (("csv-table", "--temperature", "0.2,nan"), "expected numbers from 0 on"),
        (("csv-table", "--branches", "0"), "--branches 0: give at least 1"),
        (("csv-table", "--model", "anthropic"), "BRAID_FORK__MODEL"),
        (("csv-table", "--model", "openai", "--model-name", "m"), "OPENAI_API_KEY"),
        (("csv-table", "--model", "openai", "--model-name", "m", "--base-url", "here"), "BRAID_FORK__BASE_URL"),
        (("csv-table", "--sandbox", "e2b"), "E2B_API_KEY"),
        (("csv-table", "--script", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    """As an expected failure, which the command line prints without a traceback, and with what to do."""
    monkeypatch.setenv("BRAID_STATE_DIR", str(tmp_path))
    for name in ("E2B_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BraidError, match=says):
        app(["fork", *words, "--log", str(tmp_path / "l.ndjson")])
