"""How a dataset is written: arguments, losses, directories, and what a format has no place for."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from agents.formats import FORMATS
from agents.formats.shape import Row, Style
from schemas.training import TokenStream
from streams.jobs.export.checkpoint import ExportError, State, write_card, write_dataset_manifest
from streams.jobs.export.row_file import as_columns, values_digest
from streams.jobs.export.shards import Shards
from tests.agents.formats.atif_rules import Trajectory
from tests.agents.formats.conversations import exact, model, result
from tests.agents.formats.rollouts import SHAPES, encoded, mixed
from tests.processes import run_braid
from tests.streams.jobs.export.conftest import rows, take

OBJECTS = Style(arguments="object")


def test_arguments_are_objects_in_lines(ran: Path, tmp_path: Path) -> None:
    """As a chat template that walks through them wants it."""
    take(ran, tmp_path / "out", "trl-sft", style=OBJECTS)
    row = rows(tmp_path / "out", "train-*.jsonl")[0]
    calls = [call for said in row["messages"] for call in said.get("tool_calls", ())]
    assert [call["function"]["arguments"] for call in calls] == list(SHAPES)
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["recipe"]["arguments"] == "object"


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        (
            "trl-sft",
            {"style": OBJECTS, "kind": "parquet"},
            "a Parquet column would give every call the arguments of all",
        ),
        ("openai-sft", {"style": OBJECTS}, "openai-sft has arguments of one shape"),
        ("trl-dpo", {"style": Style(loss="turns")}, "--loss turns is for trl-sft"),
        ("trl-sft", {"layout": "directory"}, "trl-sft has no layout directory"),
        ("atif", {"layout": "directory", "kind": "parquet"}, "leave --file parquet out"),
    ],
)
def test_choices_that_do_not_fit_are_refused(ran: Path, tmp_path: Path, name: str, more: Any, why: str) -> None:
    """Before anything is read or written."""
    with pytest.raises(ExportError, match=why):
        take(ran, tmp_path / "out", name, **more)
    assert not (tmp_path / "out").exists()


def test_another_style_needs_another_directory(ran: Path, tmp_path: Path) -> None:
    """One dataset has one shape."""
    take(ran, tmp_path / "out", "trl-sft")
    with pytest.raises(ExportError, match="holds an export with loss None, not 'turns'"):
        take(ran, tmp_path / "out", "trl-sft", style=Style(loss="turns"))


def test_completions_have_files_of_their_own(ran: Path, tmp_path: Path) -> None:
    """`load_dataset` finds them by the card."""
    take(ran, tmp_path / "out", "trl-sft", style=Style(loss="turns"))
    found = rows(tmp_path / "out", "spans-train-*.jsonl")
    assert len(found) == 3 * 3
    assert all(row["completion"][0]["role"] == "assistant" for row in found)
    assert not list((tmp_path / "out").glob("train-*"))
    assert "path: spans-train-*.jsonl" in (tmp_path / "out" / "README.md").read_text("utf-8")


SPOKEN = [name for name, form in FORMATS.items() if form.needs & {"sft", "dpo", "ppo"} and "parquet" in form.files]


@pytest.mark.parametrize(
    "name", [name for name in SPOKEN if name not in ("trl-stepwise", "sharegpt", "nemo-preference")]
)
def test_columns_hold_exact_conversations(tmp_path: Path, name: str) -> None:
    """Reasoning, calls, results and tokens come back from Parquet as they are."""
    form = FORMATS[name]
    group = exact(
        completion=(model("x", ("call_0", {"a": 1}), reasoning_content="r"), result("call_0", "y"), model("z"))
    )
    streams = (TokenStream(token_ids=(1, 2, 3, 4), loss_mask=(0, 1, 0, 1), logprobs=(-0.5, -0.25)),)
    group = replace(group, ppo=tuple(row.model_copy(update={"streams": streams}) for row in group.ppo))
    made = [each for each in form.make(group) if isinstance(each, Row)]
    columns = Shards(tmp_path, form, "parquet", 1000, {})
    columns.write(made, "train", 0)
    shards = columns.finish()
    assert shards
    for shard in shards:
        found = pq.read_table(tmp_path / f"{shard.name}.part").to_pylist()
        written = [as_columns(each.value, form.columns[each.part]) for each in made if each.part == shard.part]
        assert list(map(values_digest, found)) == list(map(values_digest, written))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with ids that are no file names."""
    folder = tmp_path_factory.mktemp("signed")
    (folder / "lines.ndjson").write_bytes(encoded(mixed("a/b") + mixed("r/" * 90)))
    done = run_braid("run", folder / "lines.ndjson", "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_every_trajectory_may_have_a_directory(signed: Path, tmp_path: Path) -> None:
    """Each is a file as Harbor keeps it; `braid verify` leads it back to its evidence, and finds a changed one."""
    out = tmp_path / "out"
    words = ("export", "--format", "atif", "--layout", "directory", "--from-dir", signed, "--out", out)
    done = run_braid(*words)
    assert done.returncode == 0, done.stderr
    files = sorted(out.glob("*/trajectory.json"))
    assert len(files) == 6
    assert {path.parent.name for path in files} >= {f"a%2Fb-b{index}-a0" for index in range(3)}
    for path in files:
        Trajectory.model_validate_json(path.read_bytes())
    verified = run_braid("verify", out)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "rows of */trajectory.json" in verified.stdout
    again = run_braid(*words, "--from-beginning")
    assert again.returncode == 0, again.stderr
    assert sorted(out.glob("*/trajectory.json")) == files
    assert run_braid("verify", out).returncode == 0
    files[0].write_bytes(files[0].read_bytes().replace(b"Done.", b"Gone."))
    assert run_braid("verify", out).returncode == 1


def test_a_killed_export_leaves_no_directories(signed: Path, tmp_path: Path) -> None:
    """Files of the former export are removed by the next one; a foreign trajectory stops it."""
    out = tmp_path / "out"
    (out / "x-b0-a0").mkdir(parents=True)
    (out / "x-b0-a0" / "trajectory.json.part").write_text("{")
    assert take(signed, out, "atif", layout="directory").rows == 6
    assert not (out / "x-b0-a0").exists()
    (tmp_path / "other" / "mine").mkdir(parents=True)
    (tmp_path / "other" / "mine" / "trajectory.json").write_text("{}")
    with pytest.raises(ExportError, match="not from an export that is known here"):
        take(signed, tmp_path / "other", "atif", layout="directory")
    assert take(signed, tmp_path / "other", "atif").rows == 6, "without directories it is no file of the export"


def test_the_card_and_the_manifest_say_what_is_not_carried(tmp_path: Path) -> None:
    """A field that a format has no place for is never dropped in silence."""
    state = State({}, not_carried=Counter({"reasoning_content": 7}))
    write_card(tmp_path, state, FORMATS["openai-sft"], "jsonl", "files")
    write_dataset_manifest(tmp_path, state, FORMATS["openai-sft"], None)
    assert json.loads((tmp_path / "manifest.json").read_bytes())["not_carried"] == {"reasoning_content": 7}
    assert "| reasoning_content | 7 |" in (tmp_path / "README.md").read_text("utf-8")
