"""`braid ingest` and `braid run` of the same lines give the same data, whatever the worker has read when."""

import asyncio
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.base import Record
from schemas.rankings import Ranking
from schemas.training import DpoRecord, PpoRecord, RejectedRecord, SftRecord
from streams.cluster.config import Settings
from streams.jobs.ingest import ingest_files
from streams.jobs.run.run import run_files
from streams.log.input_lines import Rejected
from streams.log.json_lines import SINK_FILES, json_line
from streams.log.topics import BY_RECORD, DEAD_LETTERS
from tests import shuffled
from tests.live import Worker, read_all, records_of, until, until_closed

pytestmark = pytest.mark.kafka

COMPARED: tuple[type[Record], ...] = (SftRecord, DpoRecord, PpoRecord, RejectedRecord, Ranking)

OF_THE_LOG = {"record_id", "ranking_id", "settled_id", "closed_id", "close_cause", "closed_at_ms"}
"""Ids that decisions have a part in, and their times: everything else of a row has to be equal."""

KILLS = 4

Rows = dict[str, Counter[bytes]]


def bare(view: dict[str, Any]) -> bytes:
    kept = {name: value for name, value in view.items() if name not in OF_THE_LOG}
    if "provenance" in kept:
        kept["provenance"] = {name: kept["provenance"][name] for name in ("raw_digests", "config_digest")}
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)


def rows_of_run(files: list[Path], out: Path) -> Rows:
    run_files(files, out, Settings(), None)
    names = {kind.__name__: out / SINK_FILES[kind] for kind in COMPARED}
    return {
        name: Counter(bare(orjson.loads(line)) for line in path.read_bytes().splitlines())
        for name, path in names.items()
    }


async def rows_of_log(settings: Settings) -> Rows:
    found: Rows = {}
    for kind in COMPARED:
        records = [record for record in await records_of(settings, BY_RECORD[kind]) if isinstance(record, kind)]
        once = {str(getattr(each, "record_id", None) or getattr(each, "ranking_id", "")): each for each in records}
        found[kind.__name__] = Counter(bare(orjson.loads(json_line(each))) for each in once.values())
    return found


async def late_letters(settings: Settings) -> int:
    letters = await read_all(settings, settings.prefix + DEAD_LETTERS.name)
    return sum(dict(letter.headers)["__braid.errors.reason"] == b"late" for letter in letters)


def rollouts_of(lines: shuffled.Lines) -> set[str]:
    return {str(line["rollout_id"]) for line in lines}


async def test_ingest_gives_the_rows_of_run(settings: Settings, tmp_path: Path) -> None:
    """With a worker that reads while lines are still written, every row and ranking is that of `braid run`; nothing is late."""
    whole, odd = shuffled.complete(1, 14), shuffled.odd(2, 12)
    files = [shuffled.write(tmp_path / "whole.ndjson", whole), shuffled.write(tmp_path / "odd.ndjson", odd)]
    with Worker(settings, tmp_path / "worker.log") as worker:
        await worker.ready()
        await ingest_files(files[:1], settings, Rejected(None), close=False)
        await ingest_files(files[1:], settings, Rejected(None), close=True)
        await until_closed(settings, rollouts_of([*whole, *odd]))
    assert await rows_of_log(settings) == await asyncio.to_thread(rows_of_run, files, tmp_path / "out")
    assert await late_letters(settings) == 0


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_killed_workers_give_the_rows_of_run(cluster: Settings, tmp_path: Path) -> None:
    """200 rollouts, twenty times, with the worker killed at random moments: every row and ranking is that of `braid run`."""
    whole, odd = shuffled.complete(3, 160), shuffled.odd(4, 40)
    files = [shuffled.write(tmp_path / "whole.ndjson", whole), shuffled.write(tmp_path / "odd.ndjson", odd)]
    expected, rollouts = await asyncio.to_thread(rows_of_run, files, tmp_path / "out"), rollouts_of([*whole, *odd])
    report = [f"run: {counts_of(expected)}"]
    for number in range(20):
        settings = cluster.model_copy(update={"prefix": f"killed{number}-{tmp_path.name}.", "partitions": 4})
        before = await ingest_while_killing(settings, files, rollouts, tmp_path / f"worker-{number}.log", number)
        found, late = await rows_of_log(settings), await late_letters(settings)
        same = "equal" if found == expected else "DIFFERENT"
        report.append(
            f"ingest {number:2}: {counts_of(found)} late {late}, closed before the last of {KILLS} kills {before}: {same}"
        )
        print(report[-1], flush=True)
    assert all(line.endswith("equal") and " late 0," in line for line in report[1:]), "\n".join(report)


def counts_of(rows: Rows) -> str:
    return " ".join(f"{name.removesuffix('Record').lower()} {found.total()}" for name, found in rows.items())


async def ingest_while_killing(settings: Settings, files: list[Path], rollouts: set[str], log: Path, seed: int) -> int:
    """Both files in, the second to be closed, under a worker that is killed again and again.

    Returns how many rollouts had closed before the last kill.
    """
    chance, worker = random.Random(seed), Worker(settings, log)

    async def ingest() -> None:
        await asyncio.sleep(chance.random() * 2)
        await ingest_files(files[:1], settings, Rejected(None), close=False)
        await ingest_files(files[1:], settings, Rejected(None), close=True)

    writing = asyncio.create_task(ingest())
    for number in range(KILLS // 2):  # while it reads
        with worker:
            await until(partial(times_said, log, "ready", number + 1), "the worker is ready", 60)
            await asyncio.sleep(chance.random() * 1.5)
    for _ in range(KILLS // 2):  # while it settles and closes
        closed = log.read_bytes().count(b'"event": "closed"')
        with worker:
            await until(
                partial(times_said, log, "closed", min(closed + 1, len(rollouts))),
                "the worker has closed something",
                120,
            )
            await asyncio.sleep(chance.random() * 0.2)
    await writing
    before = log.read_bytes().count(b'"event": "closed"')
    with worker:
        await until_closed(settings, rollouts, 240)
    return before


async def times_said(log: Path, event: str, times: int) -> bool:
    return log.read_bytes().count(f'"event": "{event}"'.encode()) >= times
