"""Every file that an export writes loads in Arrow and in `datasets`, and arguments of any shape come back exactly."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.json
import pyarrow.parquet
import pytest

from agents.formats import FORMATS
from tests.agents.formats.rollouts import SHAPES
from tests.streams.jobs.export.conftest import rows, take

BOTH = [(name, kind) for name, form in FORMATS.items() for kind in form.files]


def arguments_of(messages: list[dict[str, Any]]) -> list[Any]:
    return [json.loads(call["function"]["arguments"]) for said in messages for call in said.get("tool_calls") or ()]


def without_nulls(value: Any) -> Any:
    """A value as it was before a column gave every row the fields of all others."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def load(name: str, path: Path, cache: Path) -> Any:
    """A file as `datasets` loads it, without a network."""
    datasets = pytest.importorskip("datasets", reason="checked where `datasets` is installed")
    datasets.disable_progress_bars()
    return datasets.load_dataset(name, data_files=str(path), cache_dir=str(cache), split="train")


@pytest.mark.parametrize(("name", "kind"), BOTH)
def test_datasets_loads_every_file(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """All rows come back; in JSON lines exactly, in Parquet with nulls for what a message does not have."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    take(ran, tmp_path / "out", name, kind=kind)
    if kind == "parquet" and "jsonl" in FORMATS[name].files:
        take(ran, tmp_path / "lines", name)
    for path in sorted((tmp_path / "out").glob(f"*-*.{kind}")):
        loaded = load("json" if kind == "jsonl" else "parquet", path, tmp_path / "cache")
        if kind == "jsonl":
            assert without_nulls(list(loaded)) == without_nulls(rows(tmp_path / "out", path.name))
        elif (tmp_path / "lines").exists():
            written = rows(tmp_path / "lines", path.with_suffix(".jsonl").name)
            assert without_nulls([_unpacked(row, name) for row in loaded]) == without_nulls(written)
        else:
            assert len(loaded) == 3


def _unpacked(row: dict[str, Any], name: str) -> dict[str, Any]:
    columns = {column for part in FORMATS[name].columns.values() for column, of in part.items() if of == "json"}
    return {key: json.loads(value) if key in columns and value is not None else value for key, value in row.items()}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_arguments_of_differing_shapes_survive_arrow(ran: Path, tmp_path: Path, kind: str) -> None:
    """A column of structs would fill every call with the fields of all others; text does not."""
    take(ran, tmp_path / "out", "trl-sft", kind=kind)
    path = tmp_path / "out" / f"train-00000.{kind}"
    table = pyarrow.json.read_json(path) if kind == "jsonl" else pyarrow.parquet.read_table(path)
    found = table.to_pylist()
    assert [arguments_of(row["messages"]) for row in found] == [list(SHAPES)] * 3


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.files == ("jsonl", "parquet")])
def test_parquet_holds_what_the_lines_hold(ran: Path, tmp_path: Path, name: str) -> None:
    """Row by row the same values; free-form columns are JSON text."""
    take(ran, tmp_path / "lines", name)
    take(ran, tmp_path / "columns", name, kind="parquet")
    for path in sorted((tmp_path / "columns").glob("*.parquet")):
        found = [_unpacked(row, name) for row in pyarrow.parquet.read_table(path).to_pylist()]
        written = rows(tmp_path / "lines", path.with_suffix(".jsonl").name)
        assert without_nulls(found) == without_nulls(written)


def test_verl_columns_have_the_types_that_verl_reads(ran: Path, tmp_path: Path) -> None:
    """The prompt is a list of role and content, the ground truth text, the index a whole number; columns of tokens stand behind."""
    take(ran, tmp_path / "out", "verl-parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out" / "train-00000.parquet")
    assert table.column_names == [
        "data_source", "prompt", "ability", "reward_model", "extra_info",
        "stream_branches", "prompt_ids", "response_ids", "response_mask", "rollout_log_probs",
    ]  # fmt: skip
    assert table.to_pylist()[0]["reward_model"] == {
        "style": "rule",
        "ground_truth": json.dumps(
            {"task": sha256(b"Do the thing of r1").hexdigest(), "verifiers": ["build"]}, separators=(",", ":")
        ),
    }
    assert str(table.schema.field("extra_info").type.field("index").type) == "int64"
