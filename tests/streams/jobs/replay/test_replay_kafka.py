"""Replay of a real log: what the live worker emitted, byte by byte; archives, restored topics, trimmed and older logs."""

import asyncio
import subprocess
import uuid
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin.records_to_delete import RecordsToDelete

from streams.cluster.config import Settings
from streams.cluster.connections import start_admin
from streams.jobs.ingest import ingest_files
from streams.log.input_lines import Rejected
from streams.log.kafka_reader import KafkaReader
from streams.log.topics import AGENT_EVENTS, CLOSURES, FACTS, TOPICS
from tests.conftest import Braid
from tests.live import Worker, read_all, until_closed
from tests.processes import run_braid
from tests.sample.sample_lines import sample_lines, write_sample

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

ROLLOUTS = {str(line["rollout_id"]) for line in sample_lines() if line["type"] == "rollout"}


@pytest.fixture(scope="module")
def live(cluster: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The sample, closed by a live worker that was killed on the way."""
    folder = tmp_path_factory.mktemp("live")
    settings = cluster.model_copy(update={"prefix": f"r{uuid.uuid4().hex[:8]}.", "partitions": 4})

    async def run() -> None:
        write_sample(folder / "sample.ndjson")
        await ingest_files([folder / "sample.ndjson"], settings, Rejected(None), close=True)
        worker = Worker(settings, folder / "worker.log", BRAID_EMISSION__JUDGE__KIND="external")
        with worker:
            await asyncio.sleep(2)
        with worker:
            await until_closed(settings, ROLLOUTS)
            worker.stop()

    asyncio.run(run())
    return settings


@pytest.fixture
def configured(live: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The command line's configuration is that log."""
    _configure(monkeypatch, live)
    return live


def _configure(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    for name in ("kafka", "registry", "prefix", "partitions"):
        monkeypatch.setenv(f"BRAID_{name.upper()}", str(getattr(settings, name)))


def test_a_live_log_gives_the_bytes_that_the_worker_emitted(configured: Settings, braid: Braid) -> None:
    code, found, said = braid("replay", "--dry-run", "--verify", "--json", "--processes", 1)
    assert code == 0, said
    verified = found["verified"]
    assert verified["ok"]
    assert verified["identical"] == sum(found["records"].values()) > 100
    assert verified["superseded"] > 0  # the sample has attempts that ended and were replaced
    assert (verified["extra"], verified["elsewhere"], verified["holed"], verified["unread"]) == (0, 0, 0, 0)
    assert found["rollouts"] == len(ROLLOUTS)


def test_a_live_log_is_ok_with_attempts_that_were_replaced(configured: Settings, braid: Braid) -> None:
    """Their records are not listed by evidence; `braid verify` holds them against the events, and says that nothing covers them."""
    _, found, _ = braid("replay", "--dry-run", "--verify", "--json", "--processes", 1)
    code, said, noted = braid("verify")
    assert code == 0, said
    assert f"{found['verified']['superseded']} branch records are not listed by evidence" in noted
    assert "not what this version makes" not in noted


def test_a_bounded_part_of_a_live_log_is_verified(configured: Settings, braid: Braid) -> None:
    """Rollouts that close later are counted as not compared; a span that begins later misses what it needs, and says
    so."""
    _, whole, _ = braid("replay", "--dry-run", "--verify", "--json", "--processes", 1)
    ends = ",".join(f"{CLOSURES.name}/{number}@2" for number in range(configured.partitions))
    code, found, said = braid("replay", "--dry-run", "--verify", "--json", "--processes", 1, "--to", ends)
    assert code == 0, said
    verified, all_ = found["verified"], whole["verified"]
    assert verified["elsewhere"] > 0
    # The worker was killed: records that it wrote again count each time where they are not compared.
    assert sum(verified[name] for name in ("identical", "repeated", "superseded", "elsewhere")) == (
        all_["identical"] + all_["repeated"] + all_["superseded"]
    )
    code, found, _ = braid("replay", "--dry-run", "--verify", "--json", "--processes", 1, "--from", ends)
    assert code == 1
    assert found["verified"]["extra"] == 0
    assert found["verified"]["holed"] > 0


def test_topics_archives_and_restored_topics_give_the_same_digests(
    configured: Settings, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, plain, _ = braid("replay", "--out", tmp_path / "topics", "--json", "--processes", 2)
    code, anew, said = braid("replay", "--dry-run", "--reclose", "--json", "--processes", 1)
    assert (code, anew["rollouts"]) == (0, len(ROLLOUTS)), said
    code, archived, said = braid("archive", "--out", tmp_path / "archive", "--json")
    assert code == 0, said
    assert archived["records"] == plain["facts"]
    assert braid("archive", "check", tmp_path / "archive")[0] == 0
    monkeypatch.setenv("BRAID_REGISTRY", "")  # the archive has what is needed to read it
    monkeypatch.setenv("BRAID_KAFKA", "127.0.0.1:1")
    _, from_files, said = braid("replay", "--from-dir", tmp_path / "archive", "--out", tmp_path / "files", "--json")
    assert from_files["digests"] == plain["digests"], said
    _, anew_from_files, said = braid("replay", "--from-dir", tmp_path / "archive", "--dry-run", "--reclose", "--json")
    assert anew_from_files["digests"] == anew["digests"], said
    _configure(monkeypatch, configured)
    beside = f"re{configured.prefix}"
    code, restored, said = braid("archive", "restore", tmp_path / "archive", "--to-prefix", beside, "--json")
    assert (code, restored["records"]) == (0, archived["records"]), said
    _configure(monkeypatch, configured.model_copy(update={"prefix": beside}))
    code, again, said = braid("replay", "--dry-run", "--json", "--processes", 1)
    assert code == 0, said
    assert again["digests"] == plain["digests"]
    assert braid("archive", "restore", tmp_path / "archive", "--to-prefix", beside)[0] == 1


def test_an_archive_of_everything_is_read_by_whoever_reads_logs(
    configured: Settings, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It brings its schemas along: verified, exported, looked at and compared without the registry that numbered them."""
    assert braid("archive", "--out", tmp_path / "all", "--all", "--json")[0] == 0
    assert braid("replay", "--out", tmp_path / "again", "--json", "--processes", 1)[0] == 0
    monkeypatch.setenv("BRAID_REGISTRY", "")
    monkeypatch.setenv("BRAID_KAFKA", "127.0.0.1:1")
    code, _, said = braid("replay", "--from-dir", tmp_path / "all", "--dry-run", "--verify", "--json", "--processes", 1)
    assert code == 0, said
    code, said, _ = braid("verify", tmp_path / "all")
    assert code == 0, said
    (tmp_path / "all" / "log" / "notes.txt").touch()
    assert "notes.txt  file: the manifest does not list it" in braid("verify", tmp_path / "all")[1]
    (tmp_path / "all" / "log" / "notes.txt").unlink()
    code, exported, said = braid(
        "export", "--from-dir", tmp_path / "all", "--format", "trl-dpo", "--out", tmp_path / "d", "--json"
    )
    assert (code, exported["rollouts"], exported["rows"] > 0) == (0, len(ROLLOUTS), True), said
    for source, form in product(("all", "again"), ("rollout-wire", "atif")):
        out = tmp_path / f"{source}-{form}"
        code, exported, said = braid(
            "export", "--from-dir", tmp_path / source, "--format", form, "--out", out, "--json"
        )
        assert (code, exported["rollouts"], exported["uncovered"]) == (0, len(ROLLOUTS), 0), said
        assert braid("verify", out)[0] == 0
    # Trajectories are told by events, which only the archive has; wire records are made of branch records, which both have.
    code, found, said = braid("diff", tmp_path / "all-rollout-wire", tmp_path / "again-rollout-wire", "--json")
    assert (code, found["same"]) == (0, True), said
    code, found, said = braid("diff", tmp_path / "all", tmp_path / "again", "--json")
    assert (code, found["same"]) == (0, True), said
    code, shown, said = braid("show", "csv-parser", "--from-dir", tmp_path / "all")
    assert (code, "csv-parser" in shown) == (0, True), said


async def _times(settings: Settings) -> dict[tuple[str, bytes], list[int]]:
    found: dict[tuple[str, bytes], list[int]] = {}
    for topic in FACTS:
        for stored in await read_all(settings, settings.prefix + topic.name):
            found.setdefault((topic.name, stored.key or b""), []).append(stored.at)
    return found


def test_restored_records_keep_their_times(configured: Settings, braid: Braid, tmp_path: Path) -> None:
    braid("archive", "--out", tmp_path / "archive")
    beside = f"times{configured.prefix}"
    assert braid("archive", "restore", tmp_path / "archive", "--to-prefix", beside)[0] == 0
    before = asyncio.run(_times(configured))
    assert asyncio.run(_times(configured.model_copy(update={"prefix": beside}))) == before


def test_a_damaged_archive_is_found(configured: Settings, braid: Braid, tmp_path: Path) -> None:
    braid("archive", "--out", tmp_path / "archive")
    [*_, path] = sorted((tmp_path / "archive" / "log" / CLOSURES.name).glob("*.avro"))
    path.unlink()
    code, _, said = braid("archive", "check", tmp_path / "archive")
    assert code == 1
    assert f"{path.name}: it is missing" in said
    words = ("replay", "--from-dir", tmp_path / "archive", "--dry-run", "--json", "--processes", 1)
    code, found, said = braid(*words)
    assert (code, found) == (1, "")
    assert f"{path.name}: it is missing; take a whole copy" in said
    code, found, said = braid(*words, "--unfinished")
    assert code == 1
    assert {hole["rollout_id"] for hole in found["holes"]}
    assert f"{path.name} is missing" in said
    assert found["rollouts"] + len(found["holes"]) == len(ROLLOUTS)


def test_replay_writes_beside_and_the_new_topics_are_whole(
    configured: Settings, braid: Braid, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    beside = f"beside{configured.prefix}"
    code, found, said = braid("replay", "--to-prefix", beside, "--json", "--processes", 1)
    assert code == 0, said
    _configure(monkeypatch, configured.model_copy(update={"prefix": beside}))
    code, exported, said = braid("export", "--format", "trl-sft", "--out", tmp_path / "sft", "--json")
    assert code == 0, said
    assert (exported["rollouts"], exported["sft"]) == (len(ROLLOUTS), found["sft"])
    _configure(monkeypatch, configured)
    code, _, said = braid("replay", "--to-prefix", configured.prefix)
    assert code == 1
    assert "where the facts are" in said


def _replay_process(*more: str) -> "subprocess.CompletedProcess[str]":
    return run_braid("replay", "--json", *more)


def test_several_processes_write_beside_and_a_second_replay_does_not(configured: Settings, braid: Braid) -> None:
    """New topics are there before the processes begin, no warning is printed about them, and two datasets are never
    mixed."""
    beside = f"several{configured.prefix}"
    done = _replay_process("--to-prefix", beside, "--processes", "4")
    assert (done.returncode, done.stderr) == (0, "")
    held = asyncio.run(_held(configured, beside))
    code, _, said = braid("replay", "--to-prefix", beside, "--set", "pairs.max_per_rollout=1")
    assert code == 1
    assert f"hold {held:,} records already" in said
    assert "give another --to-prefix" in said
    assert asyncio.run(_held(configured, beside)) == held


async def _held(settings: Settings, prefix: str) -> int:
    async with KafkaReader(settings.model_copy(update={"prefix": prefix})) as log:
        return await log.count(TOPICS)


async def _trim(settings: Settings, topic: str, partition: int, before: int) -> None:
    admin = await start_admin(settings)
    try:
        await admin.delete_records(
            {TopicPartition(settings.prefix + topic, partition): RecordsToDelete(before_offset=before)}
        )
    finally:
        await admin.close()


async def _keys(settings: Settings, topic: str, partition: int, until: int) -> set[str]:
    stored = await read_all(settings, settings.prefix + topic)
    return {(each.key or b"").decode() for each in stored if each.partition == partition and each.offset < until}


def test_a_trimmed_log_names_what_it_has_lost(
    configured: Settings, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention has taken the first events of a partition: exactly their rollouts are named, all others are made again."""
    braid("archive", "--out", tmp_path / "archive")
    trimmed = configured.model_copy(update={"prefix": f"trim{configured.prefix}"})
    assert braid("archive", "restore", tmp_path / "archive", "--to-prefix", trimmed.prefix)[0] == 0
    lost = asyncio.run(_keys(trimmed, AGENT_EVENTS.name, 0, 10))
    asyncio.run(_trim(trimmed, AGENT_EVENTS.name, 0, 10))
    _configure(monkeypatch, trimmed)
    code, found, said = braid("replay", "--dry-run", "--json", "--processes", 1)
    assert code == 1
    assert {hole["rollout_id"] for hole in found["holes"]} == lost
    assert found["rollouts"] == len(ROLLOUTS) - len(lost)
    assert "begins at offset 10" in said
    braid("archive", "--out", tmp_path / "trimmed")
    code, archived, said = braid("replay", "--from-dir", tmp_path / "trimmed", "--dry-run", "--json", "--processes", 1)
    assert (code, archived["holes"], archived["digests"]) == (1, found["holes"], found["digests"]), said


def test_the_commands_of_the_page_run_as_they_stand(
    configured: Settings, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/replay.md, in its order, on a live log; only `diff` ends with 1, because something differs."""
    page = (Path(__file__).parents[4] / "docs" / "replay.md").read_text()
    commands = [line.split() for line in page.splitlines() if line.startswith("    braid ")]
    assert len(commands) >= 8
    monkeypatch.chdir(tmp_path)
    for _, *words in commands:
        code, _, said = braid(*(f"{word}{configured.prefix}" if word == "restored." else word for word in words))
        assert code == (words[0] == "diff"), (words, said)


def test_a_table_says_what_was_compared(configured: Settings, braid: Braid) -> None:
    code, table, said = braid("replay", "--dry-run", "--verify", "--processes", 1)
    assert code == 0, said
    rows: dict[str, Any] = dict(line.rsplit(maxsplit=1) for line in table.splitlines() if line.strip())
    assert rows["sink records identical"].strip() != "0"
    assert rows["  different"] == "0"
