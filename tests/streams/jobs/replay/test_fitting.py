"""Overrides are checked against the configurations that the log pins, before anything is replayed."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.closures import Closure
from schemas.emission import EmissionConfig
from streams.jobs.replay.overrides import Overrides
from streams.log.container import partitions_of, read_partition
from streams.log.file_writer import LogWriter, file_of
from streams.log.topics import CLOSURES
from streams.log.wire import Codec
from tests.conftest import Braid
from tests.sealed import sealed
from tests.streams.jobs.replay.replays import replay, rewritten

SCORED = EmissionConfig.model_validate(
    {
        "ranking": {
            "weights": [
                {"key": "objective", "weight": 1.0, "component": "objective"},
                {"key": "judge", "weight": 0.3, "component": "judge"},
                {"key": "taste", "weight": 0.1, "component": "judge_scalar"},
            ]
        },
        "summarize": {"tools": {"read_file": {"max_bytes": 4000}}},
    }
)

GIVEN = [("rewards.taste_weight=0.5", "there is no weight 'taste', there are objective, judge"),
         ("summarize.tools.read_file.max_bytes=99", "there are no limits for the tool 'read_file'")]  # fmt: skip


def _settled_under(log: Path, target: Path, config: EmissionConfig, but: int = 0) -> tuple[Path, list[str]]:
    """A copy of a log whose rollouts were settled under a configuration, but for some; says which these are."""
    left: list[str] = []

    def settle(record: Any) -> Any:
        fact = Codec().decode(CLOSURES, record.value)
        assert isinstance(fact, Closure)
        if fact.settled is None:
            return record
        if len(left) < but:
            left.append(fact.settled.rollout_id)
            return record
        settled = fact.settled.model_copy(update={"config": config.text, "config_digest": config.digest})
        return record._replace(value=Codec().encode(Closure(settled=settled)))

    return rewritten(log, target, CLOSURES, settle), left


@pytest.mark.parametrize(("given", "why"), GIVEN)
def test_what_every_rollout_pinned_can_be_set(parted: Path, braid: Braid, tmp_path: Path, given: str, why: str) -> None:
    """The default configuration has nothing of the kind, and decides nothing."""
    scored, _ = _settled_under(parted, tmp_path / "scored", SCORED)
    plain = replay(braid, scored, "--dry-run")
    assert replay(braid, scored, "--dry-run", "--set", given)["rollouts"] == plain["rollouts"] == 12


@pytest.mark.parametrize(("given", "why"), GIVEN)
def test_a_rollout_whose_configuration_it_does_not_fit_is_named(
    parted: Path, braid: Braid, tmp_path: Path, given: str, why: str
) -> None:
    """Before anything is replayed: nothing is there that was made of the others."""
    scored, [other] = _settled_under(parted, tmp_path / "scored", SCORED, but=1)
    code, _, said = braid("replay", "--from-dir", scored, "--out", tmp_path / "out", "--set", given)
    assert code == 1
    assert f"--set {given}: {why}" in said
    assert f"(in the configuration that rollout {other} was settled under)" in said
    assert not (tmp_path / "out").exists()


def test_a_value_that_no_weight_can_have_is_found_before_anything_is_replayed(
    parted: Path, braid: Braid, tmp_path: Path
) -> None:
    scored, _ = _settled_under(parted, tmp_path / "scored", SCORED)
    code, _, said = braid(
        "replay", "--from-dir", scored, "--out", tmp_path / "out", "--set", "rewards.taste_weight=much"
    )
    assert code == 1
    assert "ranking.weights.2.weight" in said
    assert not (tmp_path / "out").exists()


def test_only_the_first_settling_of_a_rollout_is_asked(parted: Path, braid: Braid, tmp_path: Path) -> None:
    """Later ones have no effect, so what was set need not fit them."""
    scored, _ = _settled_under(parted, tmp_path / "scored", SCORED)
    for partition in partitions_of(parted / "log", CLOSURES.name):
        with LogWriter(tmp_path / "more") as writer:
            for record in read_partition(parted / "log", CLOSURES.name, partition):
                writer.append(
                    CLOSURES.name, partition, record.key, record.value, record.at, offset=record.offset + 1000
                )
        first = next(iter(read_partition(tmp_path / "more", CLOSURES.name, partition))).offset
        file_of(tmp_path / "more", CLOSURES.name, partition).rename(
            file_of(scored / "log", CLOSURES.name, partition, first)
        )
    assert replay(braid, sealed(scored), "--dry-run", "--set", "rewards.taste_weight=0.5")["rollouts"] == 12


def test_what_never_settled_has_the_configuration_here(
    parted: Path, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where closings are decided again, what was set has to fit it, too."""
    scored, _ = _settled_under(parted, tmp_path / "scored", SCORED)
    words = ("replay", "--from-dir", scored, "--dry-run", "--reclose", "--set", "rewards.taste_weight=0.5")
    code, _, said = braid(*words, "--processes", 1)
    assert code == 1
    assert "(in the configuration here, for rollouts that never settled)" in said
    weights = SCORED.model_dump(mode="json")["ranking"]["weights"]
    monkeypatch.setenv("BRAID_EMISSION__RANKING__WEIGHTS", orjson.dumps(weights).decode())
    assert braid(*words, "--processes", 1)[0] == 0


def test_only_names_that_somebody_gave_are_looked_for_in_the_log() -> None:
    """Settings that every configuration has are not, as long as no other setting is held against another one."""
    assert not Overrides(["redact=false", "summarize.max_bytes=1200", "pairs.min_probability=0.8"]).depends_on_pinned
    for given in ("rewards.judge_weight=0.5", "summarize.tools.run.max_bytes=100", "ranking.weights=[]", "version=2"):
        assert Overrides([given]).depends_on_pinned
    models = [EmissionConfig, *(field.annotation for field in EmissionConfig.model_fields.values())]
    for model in models:
        decorators = getattr(model, "__pydantic_decorators__", None)
        known = {"_keeps_passes_ahead"} if model is EmissionConfig else set()  # rewards against the version
        assert decorators is None or not ({*decorators.model_validators} - known or decorators.field_validators)
