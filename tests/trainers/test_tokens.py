"""Streams of tokens in real trainers' hands: a GRPO step from ids alone, and the files in verl's and SkyRL's readers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.formats import FORMATS
from streams.cluster.config import Settings
from streams.jobs.export.export import export
from streams.jobs.export.parquet_file import read_parquet
from streams.jobs.export.recipe import Recipe
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader
from tests.streams.jobs.export.test_policy_step import BRANCHES, SAMPLED, TURNS, played
from tests.trainers import tiny

pytestmark = [pytest.mark.trainers, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

CLIP, RATE = 0.2, 0.5


class Sampler:
    """The tiny language model as an engine: log-probabilities of 32 bits, as engines return them."""

    def __init__(self) -> None:
        self.model = tiny.language_model().double().eval()

    def logprobs(self, ids: list[int]) -> Any:
        """Log-probabilities of the token after these."""
        import torch

        with torch.no_grad():
            logits = self.model(input_ids=torch.tensor([ids])).logits[0, -1]
        return logits.log_softmax(-1).numpy().astype(np.float32)


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler()


@pytest.fixture(scope="module")
def log(sampler: Sampler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rollout that the model sampled, token by token."""
    folder = tmp_path_factory.mktemp("log")
    lines = played(sampler, np.random.default_rng(2))
    (folder / "lines.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run_files([folder / "lines.ndjson"], folder / "log", Settings(), None)
    return folder / "log"


def dataset(log: Path, out: Path, name: str) -> Path:
    """The Parquet file of an export."""
    asyncio.run(export(FileReader(log), out, Recipe.of(FORMATS[name], None)))
    return out / "train-00000.parquet"


def test_a_grpo_step_from_streams_alone_begins_at_ratios_of_exactly_one(
    sampler: Sampler, log: Path, tmp_path: Path
) -> None:
    """No tokenizer is loaded: ids, mask, log-probabilities and advantages are the whole input. Only sampled tokens are learnt."""
    import torch

    rows = list(read_parquet(dataset(log, tmp_path / "out", "tokens-parquet")))
    assert len(rows) == BRANCHES
    model = sampler.model
    before = tiny.weights(model)

    def ratios(row: dict[str, Any]) -> Any:
        """Of the sampled tokens of a stream, by one pass over all of it."""
        ids = torch.tensor([row["prompt_ids"] + row["response_ids"]])
        asked = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        chosen = asked.gather(1, ids[0, 1:, None])[len(row["prompt_ids"]) - 1 :, 0]
        places = torch.tensor([place for place, bit in enumerate(row["loss_mask"]) if bit])
        recorded = torch.tensor([each for each in row["logprobs"] if each is not None], dtype=torch.float32)
        return (chosen[places].float() - recorded).exp()

    first = [ratios(row) for row in rows]
    assert {each for row in first for each in row.tolist()} == {1.0}
    assert sum(len(row) for row in first) == BRANCHES * TURNS * SAMPLED

    def objective() -> Any:
        total = []
        for row in rows:
            ratio = ratios(row)
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            total.append(torch.minimum(ratio * row["advantage"], clipped * row["advantage"]).mean())
        return torch.stack(total).mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    start = objective()
    (-start).backward()
    optimizer.step()
    assert objective().item() > start.item()
    assert any(not torch.equal(value, before[name]) for name, value in model.named_parameters())
    model.load_state_dict(before)


@pytest.mark.parametrize("name", ["verl-parquet", "tokens-parquet"])
def test_verls_reader_takes_the_files(log: Path, tmp_path: Path, name: str) -> None:
    """By its own class and its own collator: prompts, what its reward function is given, and the columns of tokens."""
    from omegaconf import OmegaConf
    from torch.utils.data import DataLoader
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    path = dataset(log, tmp_path / "out", name)
    config = OmegaConf.create({"cache_dir": str(tmp_path / "cache"), "filter_overlong_prompts_workers": 1})
    found = RLHFDataset(str(path), tiny.tokenizer(), config)
    rows = list(read_parquet(path))
    assert len(found) == len(rows) > 0
    batch = next(iter(DataLoader(found, batch_size=len(rows), collate_fn=collate_fn)))
    for place, row in enumerate(rows):
        assert batch["raw_prompt"][place] == row["prompt"]
        assert batch["data_source"][place] == "braidstream"
        assert json.loads(batch["reward_model"][place]["ground_truth"])["verifiers"] == ["build"]
        assert batch["index"][place] == row["extra_info"]["index"]
        assert [*batch["response_ids"][place]] == row["response_ids"]


def test_skyrls_reader_takes_the_files(log: Path, tmp_path: Path) -> None:
    """By its own class: messages, the class of the environment, and all columns of tokens beside them."""
    from skyrl.train.dataset import PromptDataset

    path = dataset(log, tmp_path / "out", "tokens-parquet")
    found = PromptDataset(str(path), tiny.tokenizer(), max_prompt_length=1000, num_workers=1)
    rows = list(read_parquet(path))
    assert len(found) == len(rows) > 0
    for place, row in enumerate(rows):
        prompt, env_class, extra, _ = found[place]
        assert (prompt, env_class) == (row["prompt"], "braidstream")
        assert {
            column: extra[column] for column in ("prompt_ids", "response_ids", "loss_mask", "logprobs", "reward")
        } == {column: row[column] for column in ("prompt_ids", "response_ids", "loss_mask", "logprobs", "reward")}
