"""The documentation's torch dataset over a real topic: workers of a DataLoader share the partitions, and training resumes."""

import json
import runpy
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from streams.cluster.config import Settings
from tests.live import Worker
from tests.streams.jobs.export.conftest import rows
from tests.streams.jobs.export.test_on_kafka import ROOT, take, write
from tests.trainers import tiny
from tests.trainers.test_trl import options, step

pytestmark = [pytest.mark.trainers, pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

ROLLOUTS = tuple(f"s{number}" for number in range(8))


def test_a_loader_streams_each_pair_once_and_resumes(settings: Settings, tmp_path: Path) -> None:
    """Two workers, then one after a restart: what was done is not done again, the rest comes, and a trainer learns from it."""
    from torch.utils.data import DataLoader, IterableDataset

    stream = runpy.run_path(str(ROOT / "docs" / "examples" / "dpo_stream.py"))["DpoStream"]
    with Worker(settings, tmp_path / "worker.log"):
        write(settings, tmp_path, ROLLOUTS)
    take(settings, tmp_path / "dpo", "trl-dpo")
    exported = {row["record_id"] for row in rows(tmp_path / "dpo")}
    assert len(exported) == 2 * len(ROLLOUTS)

    place = {"kafka": settings.kafka, "registry": settings.registry, "prefix": settings.prefix}
    before = stream(**place, stop_after_idle_s=5.0)
    assert isinstance(before.dataset(), IterableDataset)
    loader = iter(DataLoader(before.dataset(), batch_size=None, num_workers=2))
    first = list(islice(loader, 7))
    for row in first[:5]:  # two more were fetched when the training stopped
        before.done(row)
    del loader

    after = stream(**place, stop_after_idle_s=5.0)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    second = list(DataLoader(after.dataset(), batch_size=None, num_workers=1))
    done = [row["record_id"] for row in (*first[:5], *second)]
    assert len(done) == len(exported)
    assert set(done) == exported

    again = stream(**place, stop_after_idle_s=2.0)
    for row in (*first[:5], *second):
        again.done(row)
    assert list(DataLoader(again.dataset(), batch_size=None)) == []
    _train(second, tmp_path)


def _train(pairs: list[dict[str, Any]], folder: Path) -> None:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    trainer = DPOTrainer(
        tiny.language_model(),
        tiny.language_model(),
        DPOConfig(**options(folder), max_length=tiny.POSITIONS),
        train_dataset=Dataset.from_list(pairs),
        processing_class=tiny.tokenizer(),
    )
    step(trainer)
