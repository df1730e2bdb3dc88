"""TRL's SFTTrainer learns from the messages that the model said, and from nothing else, by its own labels."""

from pathlib import Path
from typing import Any

import pytest

from agents.formats import FORMATS
from agents.formats.shape import Group, Row, Style
from schemas.training import Message
from streams.jobs.export.shards import Shards, reveal
from tests.agents.formats.conversations import ANSWER, exact
from tests.trainers import tiny

pytestmark = [pytest.mark.trainers, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

GIVEN = ("So.", "(a colleague answers here)")


def load(group: Group, part: str, folder: Path, kind: Any) -> Any:
    """The rows of a part as the exporter writes them and `datasets` loads them."""
    import datasets

    datasets.disable_progress_bars()
    form = FORMATS["trl-sft"]
    made = [each for each in form.make(group) if isinstance(each, Row) and each.part == part]
    shards = Shards(folder, form, kind, 1000, {})
    shards.write(made, "train", 0)
    done = shards.finish()
    reveal(folder, done)
    reader = "json" if kind == "jsonl" else kind
    files = [str(folder / shard.name) for shard in done]
    return datasets.load_dataset(reader, data_files=files, cache_dir=str(folder / "cache"), split="train")


def learnt(dataset: Any, folder: Path, **more: Any) -> list[str]:
    """The text in the loss of each row, by the labels of the trainer."""
    from trl import SFTConfig, SFTTrainer

    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = tiny.TRAINING_TEMPLATE if more else tiny.REASONING_TEMPLATE
    trainer = SFTTrainer(
        tiny.language_model(),
        SFTConfig(
            output_dir=str(folder / "model"), use_cpu=True, report_to="none", bf16=False, max_length=tiny.POSITIONS, **more
        ),
        train_dataset=dataset,
        processing_class=tokenizer,
    )  # fmt: skip
    return [tokenizer.decode([each for each in row["labels"] if each != -100]) for row in trainer.train_dataset]


def spoken(messages: tuple[Message, ...]) -> list[str]:
    """The messages that the model said, as the template of the tests writes them."""
    return [
        f"{said.reasoning_content or ''}{said.content or ''}"
        + "".join(f"<|call|>{call.function.name} {call.function.arguments}" for call in said.tool_calls)
        + "<|end|>"
        for said in messages
        if said.trained
    ]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("loss", ["messages", "spans", "turns"])
def test_exactly_what_the_model_said_is_in_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, loss: Any
) -> None:
    """With given messages at the start and in the middle: no word of theirs, of a person or of a tool is learnt."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    group = exact(style=Style(loss=loss))
    found: list[str] = []
    for part in ("", "spans"):
        if any(isinstance(each, Row) and each.part == part for each in FORMATS["trl-sft"].make(group)):
            (tmp_path / f"p{part}").mkdir()
            dataset = load(group, part, tmp_path / f"p{part}", kind)
            found += learnt(dataset, tmp_path, assistant_only_loss=True)
    said = [text for record in group.sft for text in spoken(record.messages)]
    assert sorted("".join(found)) == sorted("".join(said))
    assert sorted(text for each in found for text in each.split("<|end|>")[:-1]) == sorted(
        text.removesuffix("<|end|>") for text in said
    )
    assert not any(text in each for each in found for text in GIVEN)


def test_turns_are_exact_without_any_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template without marks of what the model generates, and a trainer with its defaults."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    group = exact(style=Style(loss="turns"))
    found = learnt(load(group, "spans", tmp_path, "jsonl"), tmp_path)
    assert found == [text for record in group.sft for text in spoken(record.messages)]
    assert ANSWER in found[2]
