"""`braid export` as people call it."""

import json
import os
from pathlib import Path

import orjson
import pytest

from streams import cli
from streams.jobs.counts import Counts as RunCounts
from tests.agents.formats.rollouts import encoded, mixed
from tests.streams.jobs.export.conftest import rows, visible

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings from outside, and a directory of its own."""
    for name in [name for name in os.environ if name.startswith("BRAID_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def braid(*words: str) -> int:
    try:
        cli.main(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_json_is_one_object_of_counts(ran: Path, capsys: Output) -> None:
    """The names that `braid run --json` has, with what the export adds."""
    words = ("export", "--format", "openai-dpo", "--from-dir", str(ran), "--out", "out", "--json")
    assert braid(*words) == 0
    counts = orjson.loads(capsys.readouterr().out)
    of_run = set(RunCounts().plain()) - {"dead_letters"}
    assert of_run <= set(counts)
    assert (counts["rollouts"], counts["rows"], counts["files"], counts["bad_lines"]) == (3, 6, 1, 0)
    assert counts["rejected"] == {"not_passing": 6, "not_compared": 3}
    assert counts["events"] == 48
    assert counts["out"] == "out"
    assert counts["seconds"] >= 0


def test_people_get_a_table_and_what_is_new(ran: Path, capsys: Output) -> None:
    """Counts by reason, then where the files are; the second time that nothing is new."""
    words = ("export", "--format", "rollout-wire", "--from-dir", str(ran), "--out", "out")
    assert braid(*words) == 0
    shown = capsys.readouterr().out
    assert "left out: same_answer" in shown
    assert "3 new files in out" in shown
    assert braid(*words) == 0
    assert "nothing new for out" in capsys.readouterr().out


def test_all_options_together(ran: Path, tmp_path: Path, capsys: Output) -> None:
    """Split, filters, evaluation items, shard size and file kind from the command line."""
    (tmp_path / "items.jsonl").write_text(
        '{"id": "q", "question": "what is the airspeed velocity of an unladen swallow"}\n'
    )
    words = [
        "export", "--format", "trl-dpo", "--from-dir", str(ran), "--out", "out", "--file", "parquet", "--json",
        "--split", "train=0.5,test=0.5", "--filter", "basis=objective", "--filter", "label.team=of-r1",
        "--eval-items", "items.jsonl", "--shard-rows", "1",
    ]  # fmt: skip
    assert braid(*words) == 0
    assert orjson.loads(capsys.readouterr().out)["rows"] == 2
    recipe = json.loads((tmp_path / "out" / "manifest.json").read_bytes())["recipe"]
    assert (recipe["filters"], recipe["split"]) == (["basis=objective", "label.team=of-r1"], "train=0.5,test=0.5")
    assert [name for name in visible(tmp_path / "out") if name.endswith(".parquet")]


def test_items_that_are_too_short_are_said(ran: Path, tmp_path: Path, capsys: Output) -> None:
    """A reader should not think that they were looked for."""
    long = '{"id": "q", "question": "what is the airspeed velocity of an unladen swallow"}\n'
    words = ("export", "--format", "trl-sft", "--from-dir", str(ran), "--eval-items", "items.jsonl", "--json")
    (tmp_path / "items.jsonl").write_text(long + '{"id": "a", "question": "2 + 2?"}\n{"id": "b", "question": "why"}\n')
    assert braid(*words, "--out", "out") == 0
    shown = capsys.readouterr()
    assert "items.jsonl: 2 items are too short" in shown.err
    assert orjson.loads(shown.out)["short_items"] == 2
    (tmp_path / "items.jsonl").write_text(long)
    assert braid(*words, "--out", "other") == 0
    assert "too short" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "csv"], "there is no format 'csv'"),
        (["--format", "trl-sft", "--split", "a=2"], "--split a=2"),
        (["--format", "trl-sft", "--filter", "x"], "--filter x"),
        (["--format", "trl-sft", "--shard-rows", "0"], "--shard-rows 0"),
        (["--format", "trl-dpo", "--filter", "min_margin=nan"], "--filter min_margin=nan"),
        (["--format", "trl-dpo", "--filter", "min_score=-inf"], "--filter min_score=-inf"),
        (["--format", "verl-parquet", "--file", "jsonl"], "verl-parquet has no jsonl form"),
        (["--format", "trl-sft", "--from-dir", "absent"], "holds no embedded log"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    ran: Path, tmp_path: Path, capsys: Output, words: list[str], said: str
) -> None:
    """Exit code 1, a message that names the option, no traceback, no directory full of files."""
    source = [] if "--from-dir" in words else ["--from-dir", str(ran)]
    assert braid("export", "--out", "out", *words, *source) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
    assert not list(tmp_path.glob("out/*.jsonl"))


@pytest.mark.parametrize(("out", "said"), [("file", "--out file is a file"), ("file/x", "--out file/x: Not a dir")])
def test_a_place_that_is_no_directory_is_said(ran: Path, tmp_path: Path, capsys: Output, out: str, said: str) -> None:
    """The file is left as it is."""
    (tmp_path / "file").write_text("mine")
    assert braid("export", "--format", "trl-sft", "--from-dir", str(ran), "--out", out) == 1
    assert said in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_refuses_is_said(ran: Path, tmp_path: Path, capsys: Output) -> None:
    """Named with its file, whenever it happens."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "provenance").write_text("in the way")
    assert braid("export", "--format", "trl-sft", "--from-dir", str(ran), "--out", "out") == 1
    assert "out/provenance: File exists" in capsys.readouterr().err


def test_what_a_replay_exports_is_signed_as_its_evidence_is(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the configured key, manifest and evidence; --no-sign leaves both without."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    words = ("replay", "--from-dir", str(ran), "--format", "trl-dpo", "--processes", "1", "--json")
    assert braid(*words, "--out", "signed") == 0
    assert braid("verify", "signed/trl-dpo") == 0
    assert braid(*words, "--out", "unsigned", "--no-sign") == 0
    assert braid("verify", "unsigned/trl-dpo") == 1
    assert braid("verify", "unsigned/trl-dpo", "--allow-unsigned") == 0


def test_run_with_a_format_exports_what_run_and_export_do(tmp_path: Path, capsys: Output) -> None:
    """The same rows, manifest aside in what names the place; a second run replaces the dataset."""
    lines = tmp_path / "lines.ndjson"
    lines.write_bytes(encoded([*mixed("r1"), *mixed("r2")]))
    for _ in range(2):
        assert braid("run", str(lines), "--out", "both", "--format", "trl-dpo", "--format", "trl-sft", "--json") == 0
    assert orjson.loads(capsys.readouterr().out.splitlines()[-1])["formats"] == {"trl-dpo": 4, "trl-sft": 2}
    for name in ("trl-dpo", "trl-sft"):
        assert braid("export", "--format", name, "--from-dir", "both", "--out", f"apart-{name}") == 0
        at_once, apart = (tmp_path / "both" / name, tmp_path / f"apart-{name}")
        assert rows(at_once) == rows(apart) != []
        assert braid("verify", str(at_once)) == 0


def test_run_refuses_a_format_that_is_none_before_it_reads(capsys: Output) -> None:
    assert braid("run", "missing.ndjson", "--out", "out", "--format", "csv") == 1
    assert "there is no format 'csv'" in capsys.readouterr().err
