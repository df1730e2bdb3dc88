"""SFT rows of imported tau-bench runs in TRL's trainer: user turns between the model's, and none of the simulated user's instruction."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from tests.imports.importing import read_traces
from tests.imports.test_counts import paths_of
from tests.streams.jobs.export.conftest import take
from tests.trainers import tiny
from tests.trainers.test_trl import options, step

pytestmark = [pytest.mark.trainers, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


@pytest.fixture(params=["jsonl", "parquet"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The rows of `--format trl-sft`, as `datasets` loads them."""
    import datasets

    datasets.disable_progress_bars()
    (tmp_path / "lines.ndjson").write_bytes(read_traces("tau-bench", *paths_of("tau-bench/*.json")).text)
    run_files([tmp_path / "lines.ndjson"], tmp_path / "run", Settings(), None)
    take(tmp_path / "run", tmp_path / "sft", "trl-sft", kind=request.param)
    reader = "json" if request.param == "jsonl" else request.param
    files = sorted(str(path) for path in (tmp_path / "sft").glob(f"train-*.{request.param}"))
    return datasets.load_dataset(reader, data_files=files, cache_dir=str(tmp_path / "cache"), split="train")


def test_sft_takes_a_step_on_imported_conversations(rows: Any, tmp_path: Path) -> None:
    """Every user reply is in its place in the text that is learnt from."""
    from trl import SFTConfig, SFTTrainer

    assert len(rows) == 3
    runs = [run for path in paths_of("tau-bench/*.json") for run in orjson.loads(path.read_bytes())]
    instructions = [run["info"]["task"]["instruction"] for run in runs]
    tokenizer = tiny.tokenizer()
    for row in rows:
        said = [message for message in row["messages"] if message["role"] == "user"]
        text = tokenizer.apply_chat_template(row["messages"], tokenize=False)
        assert text.count("<|user|>") == len(said) > 1
        assert not any(instruction in text for instruction in instructions)
    trainer = SFTTrainer(
        tiny.language_model(),
        SFTConfig(**options(tmp_path), max_length=tiny.POSITIONS),
        # The policy in the system prompt alone is longer than the tiny model's context.
        train_dataset=rows.map(lambda row: {"messages": row["messages"][1:]}),
        processing_class=tokenizer,
    )
    assert all("<|assistant|>" in tokenizer.decode(row["input_ids"]) for row in trainer.train_dataset)
    assert step(trainer) > 0
