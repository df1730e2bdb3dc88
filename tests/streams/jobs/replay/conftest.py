"""The sample as a log in files: as `braid run` leaves it, and spread over partitions. Tests that change it copy it first."""

from pathlib import Path

import pytest

from tests.conftest import Braid
from tests.sample.sample_lines import write_sample
from tests.streams.jobs.replay.replays import spread


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory, braid: Braid) -> Path:
    """In one partition."""
    folder = tmp_path_factory.mktemp("run")
    write_sample(folder / "sample.ndjson")
    code, _, said = braid("run", folder / "sample.ndjson", "--out", folder / "log", "--json")
    assert code == 0, said
    return folder / "log"


@pytest.fixture(scope="session")
def parted(ran: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In four partitions."""
    return spread(ran, tmp_path_factory.mktemp("parted") / "log", 4)
