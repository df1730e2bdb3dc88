"""Exports from a directory: whole rollouts, each once, in files that appear together."""

import base64
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from agents.formats.selection import Split
from schemas.training import PpoRecord
from schemas.versions import latest
from streams.jobs.export import export, shards
from streams.jobs.export.checkpoint import ExportError
from streams.log.container import partitions_of, read_partition
from streams.log.file_writer import LogWriter
from streams.log.record import LogRecord
from streams.log.topics import BRANCHES, DPO, PPO, SFT, TOPICS
from tests.agents.formats.rollouts import mixed
from tests.conformance import conformance
from tests.older import made_older
from tests.sealed import sealed
from tests.streams.jobs.export.conftest import make_run, rows, take, visible

BESIDE = ["README.md", "checkpoint.json", "croissant.json", "manifest.json", "provenance"]


def rewritten(run: Path, folder: Path, change: Any) -> Path:
    """The log of a run, with each topic's records replaced by what `change` makes of them."""
    with LogWriter(folder / "log") as log:
        for topic in TOPICS:
            for partition in partitions_of(run / "log", topic.name):
                kept: list[LogRecord] = change(topic, list(read_partition(run / "log", topic.name, partition)))
                for record in kept:
                    log.append(topic.name, partition, record.key, record.value, record.at, record.headers)
    return sealed(folder)


def test_counts_files_and_manifest_agree(ran: Path, tmp_path: Path) -> None:
    """The files agree with the counts, and the manifest has the digest of every byte and every input."""
    counts = take(ran, tmp_path / "out", "trl-kto")
    assert (counts.rollouts, counts.branches, counts.passes, counts.fails, counts.rows) == (3, 9, 3, 6, 9)
    assert (counts.sft, counts.dpo, counts.ppo, counts.aep) == (3, 6, 9, 12)
    assert visible(tmp_path / "out") == [*BESIDE, "train-00000.jsonl"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    (file,) = manifest["files"]
    content = (tmp_path / "out" / file["name"]).read_bytes()
    assert (file["sha256"], file["bytes"], file["rows"]) == (sha256(content).hexdigest(), len(content), 9)
    assert manifest["closures"] == {"settled": 3, "closed": 3, "files": ["provenance/evidence-00000.jsonl"]}
    assert counts.events == 3 * (8 + 4 + 4)
    assert manifest["schemas"]["PpoRecord"]["version"] == latest(PpoRecord).number
    assert len(bytes.fromhex(manifest["schemas"]["PpoRecord"]["fingerprint"])) == 8
    for beside in manifest["provenance"]:
        content = (tmp_path / "out" / beside["name"]).read_bytes()
        assert (beside["sha256"], beside["rows"]) == (sha256(content).hexdigest(), content.count(b"\n"))
    assert sum(manifest["config_digests"].values()) == 3
    assert manifest["reward_range"] == [0.0, 1.1]
    assert "| reward_range | 0 to 1.1 |" in (tmp_path / "out" / "README.md").read_text("utf-8")
    (inputs,) = manifest["inputs"]
    assert inputs["topics"][PPO.name] == {"0": [0, 9]}
    path = f"{PPO.name}/00000.avro"
    assert inputs["files"][path] == sha256((ran / "log" / path).read_bytes()).hexdigest()
    assert "train-*.jsonl" in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_a_second_export_adds_only_what_is_new(tmp_path: Path) -> None:
    """Nothing new gives no file; a new rollout gives a file of its own, and the manifest knows both."""
    run = make_run(tmp_path / "a", mixed("r1"))
    assert take(run, tmp_path / "out").rows == 1
    before = (tmp_path / "out" / "train-00000.jsonl").read_bytes()
    again = take(run, tmp_path / "out")
    assert (again.rollouts, again.rows, again.files) == (0, 0, 0)
    make_run(tmp_path / "a", [*mixed("r1"), *mixed("r2")])
    more = take(run, tmp_path / "out")
    assert (more.rollouts, more.rows) == (1, 1)
    assert (tmp_path / "out" / "train-00000.jsonl").read_bytes() == before
    assert [row["rollout_id"] for row in rows(tmp_path / "out")] == ["r1", "r2"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["counts"]["rollouts"] == 2


def test_a_run_that_contradicts_what_was_exported_is_refused(tmp_path: Path) -> None:
    """The same lines again change nothing; another outcome of a rollout needs a dataset of its own, or all of it anew."""
    run = make_run(tmp_path / "a", [*mixed("r1"), *mixed("r2")])
    take(run, tmp_path / "out")
    make_run(tmp_path / "a", [*mixed("r2"), *mixed("r1")])
    assert take(run, tmp_path / "out").rollouts == 0
    make_run(tmp_path / "a", [*mixed("r1"), *mixed("r2", task="Something else, in other words.")])
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}
    with pytest.raises(ExportError, match=r"rollout 'r2' was exported before.*--from-beginning"):
        take(run, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")} == before
    assert take(run, tmp_path / "out", from_beginning=True).rollouts == 2
    assert take(run, tmp_path / "out").rollouts == 0


def test_a_checkpoint_that_knows_no_closing_evidence_is_gone_on_from(tmp_path: Path) -> None:
    """Checkpoints were without it before: their rollouts are not exported again, and not compared."""
    run = make_run(tmp_path / "a", mixed("r1"))
    take(run, tmp_path / "out")
    path = tmp_path / "out" / "checkpoint.json"
    plain = json.loads(path.read_bytes())
    seen = base64.b64encode(base64.b64decode(plain["seen"])[:8]).decode()
    path.write_text(json.dumps(plain | {"version": 2, "seen": seen}))
    make_run(tmp_path / "a", [*mixed("r1", task="Something else, in other words."), *mixed("r2")])
    assert take(run, tmp_path / "out").rollouts == 1
    assert take(run, tmp_path / "out").rollouts == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"offsets": []},
        {"seen": "%"},
        {"seen": "AAAA"},
        {"numbers": {"train": "x"}},
        {"shards": [{}]},
        {"inputs": {}},
        None,
    ],
)
def test_a_checkpoint_of_another_shape_is_refused(ran: Path, tmp_path: Path, changed: dict[str, Any] | None) -> None:
    """With any content; nothing else is touched."""
    take(ran, tmp_path / "out")
    path = tmp_path / "out" / "checkpoint.json"
    path.write_text(json.dumps(changed and json.loads(path.read_bytes()) | changed))
    for from_beginning in (False, True):
        with pytest.raises(
            ExportError, match=r"checkpoint\.json: not a checkpoint of an export \(.+\); export to another"
        ):
            take(ran, tmp_path / "out", from_beginning=from_beginning)
    assert len(rows(tmp_path / "out")) == 3


def test_from_the_beginning_replaces_what_was_there(ran: Path, tmp_path: Path) -> None:
    """All rollouts again, once each, and the old file is gone."""
    take(ran, tmp_path / "out")
    assert take(ran, tmp_path / "out", from_beginning=True).rows == 3
    assert visible(tmp_path / "out") == [*BESIDE, "train-00001.jsonl"]
    assert len(rows(tmp_path / "out")) == 3


def test_another_recipe_needs_another_directory(ran: Path, tmp_path: Path) -> None:
    """Two formats, splits or filters are never mixed in one dataset; replacing is allowed."""
    take(ran, tmp_path / "out", "trl-sft")
    with pytest.raises(ExportError, match="holds an export with format 'trl-sft'"):
        take(ran, tmp_path / "out", "sharegpt")
    with pytest.raises(ExportError, match="holds an export with split"):
        take(ran, tmp_path / "out", "trl-sft", split=Split.parse("train=0.5,test=0.5"))
    assert take(ran, tmp_path / "out", "sharegpt", from_beginning=True).rows == 3


def test_somebody_elses_files_are_never_overwritten(ran: Path, tmp_path: Path) -> None:
    """A directory with files of these names and no checkpoint is refused."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train-00000.jsonl").write_text("mine")
    with pytest.raises(ExportError, match="give another directory"):
        take(ran, tmp_path / "out")
    assert (tmp_path / "out" / "train-00000.jsonl").read_text() == "mine"


def test_one_export_at_a_time_writes_to_a_directory(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is started while another is at work is refused, and takes nothing away from it."""
    real, refused = shards.Shards.write, []

    def write(self: shards.Shards, *args: Any) -> list[shards.Place]:
        if not refused:
            in_another_thread = ThreadPoolExecutor(1).submit(take, ran, tmp_path / "out")
            refused.append(in_another_thread.exception())
        return real(self, *args)

    monkeypatch.setattr(shards.Shards, "write", write)
    assert take(ran, tmp_path / "out", shard_rows=1).files == 3
    assert isinstance(refused[0], ExportError)
    assert "another export writes to it" in str(refused[0])
    assert len(rows(tmp_path / "out")) == 3
    assert take(ran, tmp_path / "out").rollouts == 0


@pytest.mark.parametrize("topic", [SFT, DPO, PPO])
def test_a_rollout_that_misses_a_row_is_not_exported_and_is_named(ran: Path, tmp_path: Path, topic: Any) -> None:
    """For the needs of any format: half a rollout is none. The others are exported, and the row may still come."""
    damaged = rewritten(ran, tmp_path / "in", lambda each, found: found[1:] if each == topic else found)
    counts = take(damaged, tmp_path / "out")
    assert (counts.rollouts, counts.incomplete) == (2, 1)
    assert counts.missing == [f"r1: 1 of {topic.name}"]
    assert [row["rollout_id"] for row in rows(tmp_path / "out")] == ["r2", "r3"]
    shutil.rmtree(damaged)
    rewritten(ran, damaged, lambda _, found: found)
    later = take(damaged, tmp_path / "out")
    assert (later.rollouts, later.incomplete) == (1, 0)
    assert [row["rollout_id"] for row in rows(tmp_path / "out")] == ["r2", "r3", "r1"]


def test_a_changed_row_is_a_missing_row(ran: Path, tmp_path: Path) -> None:
    """A row whose bytes are not those that evidence states does not count."""

    def change(topic: Any, found: list[LogRecord]) -> list[LogRecord]:
        if topic != SFT:
            return found
        assert found[0].value is not None
        return [found[0]._replace(value=found[0].value.replace(b"Done.", b"Gone.")), *found[1:]]

    counts = take(rewritten(ran, tmp_path / "in", change), tmp_path / "out")
    assert (counts.incomplete, counts.missing) == (1, [f"r1: 1 of {SFT.name}"])


def test_a_missing_branch_record_matters_where_branches_are_exported(ran: Path, tmp_path: Path) -> None:
    """Trajectory formats need all branches that evidence speaks of."""
    damaged = rewritten(ran, tmp_path / "in", lambda each, found: found[1:] if each == BRANCHES else found)
    assert take(damaged, tmp_path / "atif", "atif").missing == [f"r1: 1 of {BRANCHES.name}"]
    assert take(damaged, tmp_path / "sft", "trl-sft").incomplete == 0


OF_BRANCHES = ["atif", "rollout-wire", "trl-stepwise"]


def poisoned(found: list[LogRecord]) -> LogRecord:
    """The first branch record, with another answer."""
    assert found[0].value is not None
    return found[0]._replace(value=found[0].value.replace(b"Done.", b"Gone."))


@pytest.mark.parametrize("name", OF_BRANCHES)
def test_a_changed_branch_record_is_a_missing_one(ran: Path, tmp_path: Path, name: str) -> None:
    """Its rollout is named and not exported where branches are; the others are."""
    damaged = rewritten(
        ran, tmp_path / "in", lambda each, found: [poisoned(found), *found[1:]] if each == BRANCHES else found
    )
    counts = take(damaged, tmp_path / name, name)
    assert (counts.rollouts, counts.incomplete) == (2, 1)
    assert counts.missing == [f"r1: 1 of {BRANCHES.name}"]
    assert {row["rollout_id"] for row in rows(tmp_path / name / "provenance", "rows-*")} == {"r2", "r3"}
    assert "Gone." not in str(rows(tmp_path / name))


@pytest.mark.parametrize("name", OF_BRANCHES)
def test_a_branch_record_that_evidence_does_not_list_is_not_exported(ran: Path, tmp_path: Path, name: str) -> None:
    """An attempt that was replaced, or a record slipped in: before or after the true one, and of the same events."""
    take(ran, tmp_path / "whole", name)
    for place in ("before", "after"):

        def add(topic: Any, found: list[LogRecord], place: str = place) -> list[LogRecord]:
            more = [poisoned(found)] if topic == BRANCHES else []
            return [*more, *found] if place == "before" else [*found, *more]

        counts = take(rewritten(ran, tmp_path / f"in-{place}", add), tmp_path / place, name)
        assert (counts.rollouts, counts.incomplete, counts.uncovered) == (3, 0, 0)
        assert rows(tmp_path / place) == rows(tmp_path / "whole")


@pytest.mark.parametrize("name", OF_BRANCHES)
def test_a_run_of_before_branches_were_listed_is_exported_and_reported(ran: Path, tmp_path: Path, name: str) -> None:
    """Branches are known by their evidence there, as they were; the counts say that no signature covers them."""
    take(ran, tmp_path / "now", name)
    older = made_older(shutil.copytree(ran, tmp_path / "in"), None)
    counts = take(older, tmp_path / name, name)
    assert (counts.rollouts, counts.incomplete, counts.uncovered) == (3, 0, 3)
    assert rows(tmp_path / name) == rows(tmp_path / "now")
    assert take(older, tmp_path / "sft", "trl-sft").uncovered == 0
    missing = rewritten(older, tmp_path / "missing", lambda each, found: found[1:] if each == BRANCHES else found)
    assert take(missing, tmp_path / "fewer", name).missing == [f"r1: 1 of {BRANCHES.name}"]


def test_what_was_written_twice_is_exported_once(ran: Path, tmp_path: Path) -> None:
    """Repetitions of rows, branches and evidence change nothing."""
    doubled = rewritten(ran, tmp_path / "in", lambda _, found: [*found, *found])
    for name in ("trl-dpo", "rollout-wire"):
        take(ran, tmp_path / f"{name}-once", name)
        take(doubled, tmp_path / f"{name}-twice", name)
        assert rows(tmp_path / f"{name}-once") == rows(tmp_path / f"{name}-twice")


def test_the_order_of_rows_in_the_log_does_not_matter(ran: Path, tmp_path: Path) -> None:
    """Topics are read as far as the rollout at hand needs; what comes earlier waits."""
    turned = rewritten(ran, tmp_path / "in", lambda each, found: found[::-1] if each in (SFT, PPO, BRANCHES) else found)
    take(ran, tmp_path / "a", "rollout-wire")
    take(turned, tmp_path / "b", "rollout-wire")
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_killed_half_way_nothing_is_visible(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whole files or none: an export that ends early leaves what was there, and the next one does it all."""
    real, written = shards.Shards.write, []

    def write(self: shards.Shards, *args: Any) -> list[shards.Place]:
        written.append(args)
        if len(written) == 3:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(shards.Shards, "write", write)
    with pytest.raises(KeyboardInterrupt):
        take(ran, tmp_path / "out", kind=kind, shard_rows=1)
    assert visible(tmp_path / "out") == []
    monkeypatch.undo()
    assert take(ran, tmp_path / "out", kind=kind).rows == 3


def test_killed_while_files_appear_the_next_export_cleans_up(ran: Path, tmp_path: Path) -> None:
    """Files that no checkpoint came to know, and partial ones, are gone after the next export."""
    take(ran, tmp_path / "out")
    for name in ("train-00001.jsonl", "train-00002.jsonl.part"):
        (tmp_path / "out" / name).write_text("{}\n")
    take(ran, tmp_path / "out")
    assert visible(tmp_path / "out") == [*BESIDE, "train-00000.jsonl"]


def kill(where: str, *args: Any, **more: Any) -> None:
    """An export that ends where this is called, as if it had been killed there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, where, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            take(*args, **more)


@pytest.mark.parametrize("where", ["_conclude", "write_dataset_manifest", "reveal"])
@pytest.mark.parametrize("from_beginning", [False, True])
def test_a_first_export_that_was_killed_while_files_appear_is_cleaned_up(
    ran: Path, tmp_path: Path, where: str, from_beginning: bool
) -> None:
    """No checkpoint knows its files; it noted them itself. Other parts and names in the next export change nothing."""
    kill(where, ran, tmp_path / "out", split=Split.parse("one=0.5,other=0.5"))
    assert take(ran, tmp_path / "out", from_beginning=from_beginning).rows == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".export.lock", *BESIDE, "train-00000.jsonl"]


def test_a_file_that_was_changed_since_is_not_cleaned_up(ran: Path, tmp_path: Path) -> None:
    """The caller that wrote to it wants it."""
    kill("_conclude", ran, tmp_path / "out")
    (tmp_path / "out" / "train-00000.jsonl").write_text("mine")
    for _ in range(2):
        with pytest.raises(ExportError, match="give another directory"):
            take(ran, tmp_path / "out")
    assert (tmp_path / "out" / "train-00000.jsonl").read_text() == "mine"


def test_files_hold_whole_rollouts(ran: Path, tmp_path: Path) -> None:
    """A file ends after the rollout that fills it: three rows each, although two were asked for."""
    take(ran, tmp_path / "out", "trl-kto", shard_rows=2)
    files = sorted((tmp_path / "out").glob("train-*.jsonl"))
    assert [len({row["rollout_id"] for row in rows(tmp_path / "out", path.name)}) for path in files] == [1, 1, 1]


def test_a_format_has_the_file_that_suits_it(ran: Path, tmp_path: Path) -> None:
    """verl is always Parquet, and OpenAI takes JSON lines only."""
    take(ran, tmp_path / "out", "verl-parquet")
    assert "train-00000.parquet" in visible(tmp_path / "out")
    with pytest.raises(ExportError, match="--file jsonl"):
        take(ran, tmp_path / "b", "openai-dpo", kind="parquet")


def test_the_documented_rollout_gives_one_two_and_one(tmp_path: Path) -> None:
    """The data-loop fixture through `braid run` and export: 1 SFT, 1 DPO and 2 PPO records."""
    (tmp_path / "in").mkdir()
    path = conformance("rollout-wire", "wasmagent-js", "data-loop", "rollout-branches.v1.jsonl")
    run = make_run(tmp_path, [json.loads(line) for line in path.read_text("utf-8").splitlines()])
    found = {name: take(run, tmp_path / name, name).rows for name in ("trl-sft", "trl-dpo", "trl-kto")}
    assert found == {"trl-sft": 1, "trl-dpo": 1, "trl-kto": 2}
    items = conformance("rollout-wire", "wasmagent-js", "data-loop", "eval-items.v1.jsonl")
    assert take(run, tmp_path / "checked", "trl-sft", eval_items=items).contaminated == {}
