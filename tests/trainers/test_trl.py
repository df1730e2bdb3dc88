"""TRL's trainers take a real step on the files that `braid export` wrote, and tool calls are in what they learn from."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agents.formats.rollouts import SHAPES
from tests.streams.jobs.export.conftest import ran, take  # noqa: F401 - a fixture
from tests.trainers import tiny

pytestmark = [pytest.mark.trainers, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


@pytest.fixture(params=["jsonl", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def loaded(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Callable[[str], Any]:  # noqa: F811
    """A format as `datasets` loads what the exporter wrote."""
    import datasets

    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets.disable_progress_bars()

    def load(name: str) -> Any:
        take(ran, tmp_path / name, name, kind=kind)
        reader = "json" if kind == "jsonl" else kind
        files = sorted(str(path) for path in (tmp_path / name).glob(f"train-*.{kind}"))
        return datasets.load_dataset(reader, data_files=files, cache_dir=str(tmp_path / "cache"), split="train")

    return load


def options(folder: Path, **more: Any) -> dict[str, Any]:
    """One step on the processor, and nothing written or sent anywhere."""
    return {
        "output_dir": str(folder / "model"), "use_cpu": True, "max_steps": 1, "per_device_train_batch_size": 2,
        "learning_rate": 0.1, "lr_scheduler_type": "constant", "report_to": "none", "save_strategy": "no", "logging_steps": 1,
        "disable_tqdm": True, "seed": 7, "bf16": False, "gradient_checkpointing": False, "dataloader_pin_memory": False,
        **more,
    }  # fmt: skip


def step(trainer: Any) -> float:
    """Train for one step: parameters change and stay finite, and so is the loss."""
    before = tiny.weights(trainer.model)
    loss = trainer.train().training_loss
    changed = [name for name, old in before.items() if not old.equal(trainer.model.get_parameter(name))]
    assert changed
    assert all(bool(parameter.isfinite().all()) for parameter in trainer.model.parameters())
    assert math.isfinite(loss)
    assert trainer.state.global_step == 1
    return float(loss)


def assert_calls_in(text: str) -> None:
    """Every call stands in the text that is learnt from, with its exact arguments."""
    calls = [piece.partition("<|")[0].partition(" ") for piece in text.split("<|call|>")[1:]]
    assert [(name, json.loads(arguments)) for name, _, arguments in calls] == [("write_file", each) for each in SHAPES]


def test_sft(loaded: Callable[[str], Any], tmp_path: Path) -> None:
    """SFTTrainer learns from whole conversations with their calls and results."""
    from trl import SFTConfig, SFTTrainer

    trainer = SFTTrainer(
        tiny.language_model(),
        SFTConfig(**options(tmp_path), max_length=tiny.POSITIONS),
        train_dataset=loaded("trl-sft"),
        processing_class=(tokenizer := tiny.tokenizer()),
    )
    text = tokenizer.decode(trainer.train_dataset[0]["input_ids"])
    assert text.startswith("<|tools|>write_file shell <|end|><|system|>Be brief.<|end|><|user|>Do the thing of r")
    assert_calls_in(text)
    assert "<|tool|>did 0-0<|end|>" in text
    assert "<|assistant|>Done." in text
    assert step(trainer) > 0


def test_dpo(loaded: Callable[[str], Any], tmp_path: Path) -> None:
    """DPOTrainer compares two continuations of one prompt, calls included."""
    from trl import DPOConfig, DPOTrainer

    trainer = DPOTrainer(
        tiny.language_model(),
        tiny.language_model(),
        DPOConfig(**options(tmp_path), max_length=tiny.POSITIONS),
        train_dataset=loaded("trl-dpo"),
        processing_class=(tokenizer := tiny.tokenizer()),
    )
    # The reference is the model itself before its first step: the loss is that of a coin.
    rows = [
        {name: tokenizer.decode(row[name]) for name in row if name.endswith("_ids")} for row in trainer.train_dataset
    ]
    whole = [row["prompt_ids"] + row["chosen_ids"] for row in rows]
    assert whole
    for text in whole:
        assert_calls_in(text)
    assert all(row["chosen_ids"] != row["rejected_ids"] and row["rejected_ids"] for row in rows)
    assert step(trainer) == pytest.approx(math.log(2), abs=1e-3)


def test_kto(loaded: Callable[[str], Any], tmp_path: Path) -> None:
    """KTOTrainer takes passing and failing branches by their label."""
    from trl import KTOConfig, KTOTrainer

    data = loaded("trl-kto")
    assert sorted(data["label"]) == [False] * 6 + [True] * 3
    trainer = KTOTrainer(
        tiny.language_model(),
        tiny.language_model(),
        KTOConfig(**options(tmp_path), max_length=tiny.POSITIONS),
        train_dataset=data,
        processing_class=(tokenizer := tiny.tokenizer()),
    )
    good = next(row for row in trainer.train_dataset if row["label"])
    assert_calls_in(tokenizer.decode(good["prompt_ids"] + good["completion_ids"]))
    step(trainer)


def test_reward(loaded: Callable[[str], Any], tmp_path: Path) -> None:
    """RewardTrainer learns to score the chosen conversation above the rejected one."""
    from trl import RewardConfig, RewardTrainer

    trainer = RewardTrainer(
        tiny.scoring_model(),
        RewardConfig(**options(tmp_path), max_length=tiny.POSITIONS),
        train_dataset=loaded("trl-reward"),
        processing_class=(tokenizer := tiny.tokenizer()),
    )
    assert_calls_in(tokenizer.decode(trainer.train_dataset[0]["chosen_ids"]))
    step(trainer)


def test_grpo(loaded: Callable[[str], Any], tmp_path: Path) -> None:
    """GRPOTrainer samples for our prompts and hands the group's columns to the reward function."""
    from trl import GRPOConfig, GRPOTrainer

    seen: list[Any] = []

    def reward(
        completions: list[Any], rewards: list[list[float]], reference_answer: list[str], **more: Any
    ) -> list[float]:
        seen.append((rewards, reference_answer, more["sampled"]))
        return [float(place % 2) for place, _ in enumerate(completions)]

    trainer = GRPOTrainer(
        tiny.language_model(),
        reward,
        GRPOConfig(**options(tmp_path), num_generations=2, max_completion_length=8),
        train_dataset=loaded("trl-grpo"),
        processing_class=tiny.tokenizer(),
    )
    step(trainer)
    rewards, answers, sampled = seen[0]
    assert rewards[0] == [1.0, 0.0, 0.0]
    assert answers[0] == "Done."
    assert len(sampled[0]) == 3
