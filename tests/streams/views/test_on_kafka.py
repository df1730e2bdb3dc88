"""Looking into a real Kafka: listing, showing and tailing what a real worker wrote."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from schemas.codec.avro import COMPILED
from streams.cluster.config import Settings
from streams.log.kafka_reader import KafkaReader, View
from streams.log.topics import LIFECYCLE, TOPICS
from streams.views.account import account_of
from tests.streams.views.conftest import CLOSED, OPEN, SECRET, Braid, environment

pytestmark = pytest.mark.kafka


def test_rollouts_lists_every_rollout_and_how_it_stands(looked: Settings, braid: Braid) -> None:
    """Newest first, with outcomes, best branch and rows."""
    shown = braid(looked, "rollouts")
    rows = {line.split()[0]: line for line in shown.out.splitlines() if line}
    assert shown.code == 0
    assert set(CLOSED) | {OPEN} <= rows.keys()
    assert "4/4      71  4/0/0              complete, complete  0 (1.258)  4/4/4" in rows["lru-cache"]
    assert "4 rollouts: 3 closed, 1 open" in shown.out


def test_rollouts_can_be_filtered_and_printed_as_json(looked: Settings, braid: Braid) -> None:
    """For programs: the rows of one status, redacted."""
    found = braid(looked, "rollouts", "--status", "open", "--json")
    assert [row["rollout_id"] for row in found.json["rollouts"]] == [OPEN]  # type: ignore[attr-defined]
    assert (found.json["total"], found.json["matching"]) == (4, 1)
    assert "bob@example.com" not in found.out


def test_rollouts_says_what_to_do_when_there_is_nothing(settings: Settings, braid: Braid) -> None:
    """Before anything exists, not even topics, and without creating them."""
    shown = braid(settings, "rollouts")
    assert shown.code == 0
    assert "nothing yet" in shown.out
    assert "braid worker" in shown.out


async def test_looking_creates_no_topics(settings: Settings) -> None:
    """Asking for what is not there leaves the cluster as it was."""
    async with KafkaReader(settings) as log:
        assert (await account_of(log, "nobody")).is_empty
        await View(log).refresh()
        await log.look_at_topics()
        assert log.partitions(LIFECYCLE) == []


def test_show_tells_everything_about_a_closed_rollout(looked: Settings, braid: Braid) -> None:
    """Ranking with bars, verdicts, votes both ways, rows, what was left out, evidence and dead letters."""
    shown = braid(looked, "show", "lru-cache")
    assert shown.code == 0
    for text in (
        "lru-cache  closed", "├", "Not powered: 4 branches", "success in test, exit 0, 6/6 tests", "2+1 =1",
        "0 over 2 (judge, margin 0.251, p 0.996)", "SFT 4: branch 0, 3, 1, 2", "over_max_per_rollout",
        "5 records, signed by", "lists 14 rows and 4 branch records: all of them are in the log", "Dead letters (2)", "late",
        "undecodable",
    ):  # fmt: skip
        assert text in shown.out
    assert SECRET not in shown.out


def test_show_folds_what_is_known_of_an_open_rollout(looked: Settings, braid: Braid) -> None:
    """Branches seen and ended, verdicts so far, and what is waited for."""
    shown = braid(looked, "show", OPEN)
    for text in (
        "half-done  open",
        "not heard of: branch 3",
        "still running: branch 1",
        "Branches (3 of 4)",
        "answered",
    ):
        assert text in shown.out
    assert SECRET not in shown.out


def test_show_of_an_unknown_rollout_is_an_error(looked: Settings, braid: Braid) -> None:
    """Exit code 1, no traceback, and what was meant."""
    shown = braid(looked, "show", "lru-cash")
    assert (shown.code, shown.out) == (1, "")
    assert "did you mean lru-cache?" in shown.err


async def test_a_rollout_is_read_from_its_first_fact_on(looked: Settings) -> None:
    """With a start time, what stands before it is not read; without one, everything is."""
    async with KafkaReader(looked) as log:
        whole = [placed async for placed in log.records(TOPICS, rollout_id="lru-cache")]
        row = await log.view_row("lru-cache")
        assert row is not None
        end = whole[-1].record.at + 3_600_000
        later = [placed async for placed in log.records(TOPICS, rollout_id="lru-cache", since=end)]
        since = [placed async for placed in log.records(TOPICS, rollout_id="lru-cache", since=row.started_at)]
    assert (len(since), later) == (len(whole), [])


def test_tail_prints_a_line_for_each_record(looked: Settings, braid: Braid) -> None:
    """Where it stands, whose it is, what it is, and its gist."""
    shown = braid(looked, "tail", "dpo", "--rollout", "lru-cache", "--no-follow")
    assert len(shown.out.splitlines()) == 4
    assert all("lru-cache" in line and "DpoRecord" in line and " over " in line for line in shown.out.splitlines())


def test_tail_as_json_is_redacted_and_ends_at_its_limit(looked: Settings, braid: Braid) -> None:
    """One object a line, and no more than asked for, while the topic is followed."""
    shown = braid(looked, "tail", "agent-events", "--from-beginning", "--rollout", OPEN, "--limit", "3", "--json")
    found = [orjson.loads(line) for line in shown.out.splitlines()]
    assert [each["type"] for each in found] == ["AgentEvents"] * 3
    assert SECRET not in shown.out


def test_tail_shows_what_cannot_be_decoded_and_goes_on(looked: Settings, braid: Braid) -> None:
    """Bytes that are no record are said to be so, with the reason, among those that are."""
    shown = braid(looked, "tail", "build", "--rollout", "lru-cache", "--no-follow")
    lines = shown.out.splitlines()
    assert "undecodable" in lines[-1]
    assert "neither Confluent nor single-object Avro" in lines[-1]
    assert "BuildVerdict" in lines[0]


def test_tail_of_an_unknown_topic_lists_the_topics(looked: Settings, braid: Braid) -> None:
    """The error is the help."""
    shown = braid(looked, "tail", "nope")
    assert shown.code == 1
    assert "training.rejected.v1" in shown.err


class Following(NamedTuple):
    """Two commands that go on until Ctrl-C, started together: most of their time is spent on imports."""

    tail: subprocess.Popen[bytes]
    watch: subprocess.Popen[bytes]
    screen: int
    """The terminal that the second one writes to."""


@pytest.fixture(scope="module")
def following(looked: Settings) -> Iterator[Following]:
    """`tail` into a pipe, and `rollouts --watch` on a terminal."""
    command = [sys.executable, "-m", "streams.cli"]
    env = os.environ | environment(looked, TERM="xterm", COLUMNS="200", LINES="40")
    screen, terminal = pty.openpty()
    tail = subprocess.Popen(
        [*command, "tail", "lifecycle", "--from-beginning", "--json"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    watch = subprocess.Popen([*command, "rollouts", "--watch"], env=env, stdout=terminal, stderr=subprocess.PIPE)
    os.close(terminal)
    yield Following(tail, watch, screen)
    for process in (tail, watch):
        process.kill()
        process.communicate()
    os.close(screen)


def test_tail_follows_until_it_is_interrupted(following: Following) -> None:
    """Ctrl-C is how it ends: exit code 0, nothing on standard error."""
    process = following.tail
    assert process.stdout is not None
    assert orjson.loads(process.stdout.readline())["type"] == "Lifecycle"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")


def test_rollouts_can_be_watched_until_it_is_interrupted(following: Following) -> None:
    """The table is there before the end, and Ctrl-C ends it with exit code 0."""
    seen = b""
    while b"3 closed, 1 open" not in seen:
        assert select.select([following.screen], [], [], 60)[0], seen
        seen += os.read(following.screen, 65_536)
    following.watch.send_signal(signal.SIGINT)
    _, errors = following.watch.communicate(timeout=60)
    assert (following.watch.returncode, errors) == (0, b"")


def test_doctor_names_a_typo_and_missing_topics(settings: Settings, braid: Braid) -> None:
    """Exit code 1, what is wrong, and what to do about it."""
    shown = braid(settings, "doctor", BRAID_PREFX="oops")
    assert shown.code == 1
    for text in (
        "BRAID_PREFX",
        "did you mean BRAID_PREFIX?",
        f"none of the {len(TOPICS)} topics is there",
        "`braid up` creates them",
    ):
        assert text in shown.out


def test_doctor_says_when_kafka_is_away(settings: Settings, braid: Braid) -> None:
    """A wrong address is a problem, and the rest is still looked at."""
    away = settings.model_copy(update={"kafka": "127.0.0.1:1", "registry": ""})
    shown = braid(away, "doctor", "--json")
    results = {check["name"]: check["result"] for check in shown.json["checks"]}  # type: ignore[attr-defined]
    assert (shown.code, results["kafka"], results["topics"], results["python"]) == (1, "problem", "skipped", "ok")
    assert results["compiled"] == ("ok" if COMPILED else "warning")
    assert shown.err == ""


def test_doctor_survives_a_file_that_cannot_be_parsed(braid: Braid, tmp_path: Path) -> None:
    """The place of the error is named; the machine is still looked at."""
    path = tmp_path / "broken.toml"
    path.write_text("prefix = \n")
    shown = braid(None, "doctor", BRAID_CONFIG=str(path))
    assert shown.code == 1
    assert "line 1, column 10" in " ".join(shown.out.split())


def test_doctor_finds_nothing_wrong_but_the_missing_worker(looked: Settings, braid: Braid) -> None:
    """Kafka, topics, registry and schemas are fine; facts of the open rollout wait for a worker."""
    began = time.monotonic()
    while True:  # the group knows of the worker that ended until its session is over
        found = braid(looked, "doctor", "--json")
        results = {check["name"]: check["result"] for check in found.json["checks"]}  # type: ignore[attr-defined]
        if results["worker"] != "ok":
            break
        assert time.monotonic() - began < 60
        time.sleep(0.2)
    fine = ("configuration", "variables", "kafka", "topics", "registry", "schemas")
    assert {name: results[name] for name in fine} == dict.fromkeys(fine, "ok")
    assert (results["worker"], found.code) == ("problem", 1)
    assert sum(found.json["lag"].values()) > 0  # type: ignore[attr-defined]
