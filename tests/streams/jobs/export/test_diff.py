"""`braid diff` on exported datasets: rows matched by what they are about, and what is known of those that are missing."""

import json
import shutil
from pathlib import Path

import pytest

from agents.formats.selection import Filters
from streams.jobs.diff.diff import Difference, diff
from streams.jobs.errors import ReplayError
from tests.agents.formats.rollouts import mixed
from tests.conftest import Braid
from tests.streams.jobs.export.conftest import make_run, take


def counted(found: Difference, kind: str) -> tuple[int, int, int, int]:
    changes = found.rows[kind]
    return changes.same, changes.added, changes.gone, changes.changed


@pytest.mark.parametrize(("form", "kind"), [("trl-dpo", "jsonl"), ("trl-kto", "parquet"), ("rl-transitions", "jsonl")])
def test_a_copy_is_the_same(ran: Path, tmp_path: Path, form: str, kind: str) -> None:
    """For any file, every row is found again and nothing differs."""
    counts = take(ran, tmp_path / "one", form, kind=kind)
    take(ran, tmp_path / "other", form, kind=kind, shard_rows=2)
    found = diff(tmp_path / "one", tmp_path / "other")
    assert found.same
    assert counted(found, form) == (counts.rows, 0, 0, 0)
    assert found.rollouts == (3, 0, 0)


def test_rows_that_a_filter_kept_out_are_named_with_the_filter(ran: Path, tmp_path: Path) -> None:
    """They were made and left out, and the rule that differs is said."""
    take(ran, tmp_path / "all", "trl-dpo")
    take(ran, tmp_path / "some", "trl-dpo", filters=Filters.parse(["min_margin=9"]))
    found = diff(tmp_path / "all", tmp_path / "some")
    assert counted(found, "trl-dpo") == (0, 0, 6, 0)
    assert found.rows["trl-dpo"].causes == {"gone: left out of the export": 6}
    assert "filters: nothing -> min_margin=9" in found.rules
    assert "left out as filtered:min_margin: nothing -> 6" in found.rules
    turned = diff(tmp_path / "some", tmp_path / "all")
    assert counted(turned, "trl-dpo") == (0, 6, 0, 0)


def test_rollouts_that_are_only_in_one(ran: Path, tmp_path: Path) -> None:
    """Rows of a rollout that the other dataset has never seen are not a matter of rules."""
    take(ran, tmp_path / "three", "trl-sft")
    take(make_run(tmp_path / "more", mixed("r9")), tmp_path / "one", "trl-sft")
    found = diff(tmp_path / "three", tmp_path / "one")
    assert found.rollouts == (0, 3, 1)
    assert found.rows["trl-sft"].causes == {"gone: the rollout is not there": 3, "added: the rollout is not there": 1}


def test_other_rules_are_named_for_replayed_datasets(ran: Path, tmp_path: Path, braid: Braid) -> None:
    """`braid replay --format` under another limit: rows changed, in which fields, and the setting that did it."""
    for name, more in (
        ("before", ()),
        ("after", ("--set", "rewards.judge_weight=0.9", "--set", "pairs.max_per_rollout=1")),
    ):
        words = ("--from-dir", ran, "--out", tmp_path / name, "--format", "trl-dpo", "--format", "trl-sft", *more)
        code, _, said = braid("replay", *words, "--json", "--processes", 1)
        assert code == 0, said
    code, found, _ = braid("diff", tmp_path / "before" / "trl-dpo", tmp_path / "after" / "trl-dpo", "--json")
    assert code == 1
    assert found["rows"]["trl-dpo"]["gone"] == 3
    assert found["rows"]["trl-dpo"]["causes"]["gone: not made, or left out of the export"] == 3
    assert "set: nothing -> rewards.judge_weight=0.9, pairs.max_per_rollout=1" in found["rules"]
    manifests = (tmp_path / name / "trl-sft" / "manifest.json" for name in ("before", "after"))
    code, found, _ = braid("diff", *manifests, "--json")
    assert (code, found["rows"]["trl-sft"]["same"]) == (0, 3)


def test_what_cannot_be_compared_is_said(ran: Path, tmp_path: Path) -> None:
    """A dataset and a log, a place without either, and a dataset that was changed."""
    take(ran, tmp_path / "out", "trl-sft")
    with pytest.raises(ReplayError, match=r"is an exported dataset and .* is a log"):
        diff(ran, tmp_path / "out")
    with pytest.raises(ReplayError, match="neither a directory nor"):
        diff(tmp_path / "out", tmp_path / "nowhere")
    for name, spoil in (("no-origin", _forget_origins), ("no-file", _lose_rows), ("no-json", _cut_manifest)):
        shutil.copytree(tmp_path / "out", tmp_path / name)
        spoil(tmp_path / name)
        with pytest.raises(ReplayError, match=f"{name}.*braid verify"):
            diff(tmp_path / "out", tmp_path / name)


def _forget_origins(folder: Path) -> None:
    path = folder / "provenance" / "rows-00000.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def _lose_rows(folder: Path) -> None:
    (folder / "train-00000.jsonl").unlink()


def _cut_manifest(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    del manifest["recipe"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
