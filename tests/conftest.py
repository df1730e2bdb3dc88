"""Fixtures that tests share: one real Kafka and registry for the whole run, and a prefix of its own for every test."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as examples

from streams.cli import main
from streams.cluster import broker
from streams.cluster.broker import places
from streams.cluster.config import Settings
from tests.processes import end_forking

# `make test` tries twenty-five examples of every property, always the same ones: a new one is found by `make properties`, and a
# landing does not depend on luck. Nor on the machine's load: no example has a deadline, and slow drawing is no failure.
STEADY = examples(deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.register_profile("quick", STEADY, max_examples=25, derandomize=True, database=None)
examples.register_profile("long", STEADY, max_examples=200, derandomize=False, print_blob=True)
examples.register_profile("thorough", STEADY, max_examples=1000, derandomize=False, print_blob=True)
examples.load_profile("quick")

REASON = "needs Java 17+ and Maven for a real Kafka; these tests were NOT run"


def pytest_sessionfinish() -> None:
    """End the process that others were forked from."""
    end_forking()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A running Kafka with a schema registry: the configured one (BRAID_KAFKA), or one started for this run.

    Runs side by side share the one in TEST_BROKER: the first of them starts it, and tests/suite.py stops it.
    """
    if os.environ.get("BRAID_KAFKA"):
        yield Settings()
        return
    if shutil.which("java") is None or shutil.which("mvn") is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI {REASON}")
        pytest.skip(REASON)
    shared = os.environ.get("TEST_BROKER")
    state = Path(shared) if shared else tmp_path_factory.mktemp("broker")
    if not state.is_dir():
        pytest.exit("tests/suite.py has ended: nothing would stop the broker that these tests need", 1)
    endpoint = broker.start(state, places.cache_dir())
    try:
        yield Settings(kafka=endpoint.bootstrap, registry=endpoint.registry or "", state_dir=state)
    finally:
        if not shared:
            broker.stop(state, wipe=True)


Braid = Callable[..., tuple[int, Any, str]]
"""The command line in this process: exit code, what it printed (an object when that is JSON), what it complained about."""


@pytest.fixture(scope="session")
def braid() -> Braid:
    """Run `braid` with these words."""

    def run(*words: object) -> tuple[int, Any, str]:
        out, complaints, code = StringIO(), StringIO(), 0
        with redirect_stdout(out), redirect_stderr(complaints):
            try:
                main([*map(str, words)])
            except SystemExit as ended:
                code = int(ended.code or 0)
        said = out.getvalue()
        return code, json.loads(said) if said.startswith("{") else said, complaints.getvalue()

    return run


@pytest.fixture
def settings(cluster: Settings, tmp_path: Path) -> Settings:
    """The cluster under a prefix of its own."""
    return cluster.model_copy(update={"prefix": f"t{uuid.uuid4().hex[:8]}.", "partitions": 4})
