"""The origin of values, masked ones, and variables without a setting; and checks that need no cluster."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.evidence.keys import generate_key, save_key
from schemas.emission import EmissionConfig, RankingConfig, Weight
from streams.cluster.config import GatewayConfig, Settings, VerifierConfig, load
from streams.log.topics import TOPICS
from streams.views import machine_checks as checks
from streams.views.cluster_checks import topics_check
from streams.views.configuration import effective, unknown_variables


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file that is in force."""
    path = tmp_path / "braid.toml"
    path.write_text(
        'prefix = "file."\npartitions = 2\n[security]\npassword = "sesame"\n[emission.judge]\nsamples = 3\n'
    )
    monkeypatch.setenv("BRAID_CONFIG", str(path))
    return path


def test_every_value_says_where_it_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags over variables over the file over defaults, in nested sections too."""
    monkeypatch.setenv("BRAID_PARTITIONS", "3")
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "external")
    flags = {"replication": 1}
    found = {each.name: (each.value, each.source) for each in effective(load(**flags), flags)}
    assert found["replication"] == ("1", "flag")
    assert found["partitions"] == ("3", "variable BRAID_PARTITIONS")
    assert found["emission.judge.kind"] == ("external", "variable BRAID_EMISSION__JUDGE__KIND")
    assert found["emission.judge.samples"] == ("3", f"file {file}")
    assert found["prefix"] == ("file.", f"file {file}")
    assert found["worker.slot"] == ("0", "default")


def test_a_section_as_json_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that is set is named, not the one that could have been."""
    monkeypatch.setenv("BRAID_CLOSING", '{"idle_ms": 5}')
    found = {each.name: each.source for each in effective(load())}
    assert found["closing.idle_ms"] == "variable BRAID_CLOSING"
    assert found["closing.deadline_ms"] == "default"


def test_secrets_are_masked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords and tokens never reach the listing."""
    monkeypatch.setenv("BRAID_GATEWAY__TOKENS", '[{"token": "open-sesame-123", "roles": ["agent"]}]')
    monkeypatch.setenv("BRAID_SECURITY__REGISTRY_PASSWORD", "open-sesame-123")
    shown = str(effective(load()))
    assert "sesame" not in shown
    assert "agent" in shown


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("BRAID_PREFX", "BRAID_PREFIX"),
        ("BRAID_EMISSION__JUGDE__KIND", "BRAID_EMISSION__JUDGE__KIND"),
        ("BRAID_COLOUR", None),
    ],
)
def test_a_variable_that_nobody_reads_is_named(name: str, meant: str | None) -> None:
    """A typo is told from a stranger."""
    assert unknown_variables({name: "x", "PATH": "y"}) == [(name, meant)]


@pytest.mark.parametrize(
    "name", ["BRAID_PREFIX", "braid_prefix", "BRAID_CONFIG", "BRAID_EMISSION__SUMMARIZE__TOOLS__READ__MAX_BYTES"]
)
def test_a_variable_that_is_read_is_known(name: str) -> None:
    """In any case, and with names of the user's own in it."""
    assert unknown_variables({name: "x"}) == []


def test_a_typo_is_a_problem_and_a_stranger_a_warning() -> None:
    """With a typo, what runs is not what was meant."""
    assert [check.result for check in checks.check_variables({"BRAID_PREFX": "x", "BRAID_COLOUR": "y"})] == [
        "warning",
        "problem",
    ]


def test_a_gateway_for_others_without_tokens_is_a_problem() -> None:
    """Any client could write verdicts."""
    assert checks.check_gateway(Settings(gateway=GatewayConfig(host="0.0.0.0"))).result == "problem"
    assert checks.check_gateway(Settings()).result == "ok"


def test_a_judge_or_model_that_cannot_be_asked_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable that is missing; a server of one's own needs no key over chat completions."""

    def found(name: str, **environment: str) -> tuple[str, str]:
        (check,) = (each for each in checks.machine_checks(load(), environment) if each.name == name)
        return check.result, check.detail

    monkeypatch.setenv("BRAID_EMISSION__JUDGE__KIND", "openai")
    assert found("judge") == ("warning", "openai: no judge model; nothing can be asked")
    monkeypatch.setenv("BRAID_EMISSION__JUDGE__MODEL", "m")
    monkeypatch.setenv("BRAID_FORK__MODEL", "n")
    assert "set OPENAI_API_KEY" in found("judge")[1]
    assert found("judge", OPENAI_API_KEY="k") == ("ok", "openai, mode pairwise")
    assert found("fork model")[0] == "warning"
    assert found("fork model", ANTHROPIC_API_KEY="k") == ("ok", "n, by --model anthropic")
    monkeypatch.setenv("BRAID_JUDGE__BASE_URL", "http://127.0.0.1:8000/v1")
    monkeypatch.setenv("BRAID_FORK__BASE_URL", "http://127.0.0.1:8000/v1")
    assert found("judge") == ("ok", "openai, mode pairwise")
    assert found("fork model") == ("ok", "n, by --model openai")


def test_scores_that_would_count_nowhere_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that asks for scores needs a weight for them; pairs alone need none."""

    def found() -> tuple[str, bool]:
        (check,) = (each for each in checks.machine_checks(load(), {}) if each.name == "judge")
        return check.result, "emission.ranking.weights" in check.advice

    assert found() == ("ok", False)
    for mode in ("scalar", "pairwise+scalar"):
        monkeypatch.setenv("BRAID_EMISSION__JUDGE__MODE", mode)
        assert found() == ("warning", True)
    weight = {"key": "scored", "weight": 0.2, "component": "judge_scalar"}
    monkeypatch.setenv("BRAID_EMISSION__RANKING__WEIGHTS", json.dumps([weight]))
    assert found() == ("ok", False)
    monkeypatch.setenv("BRAID_EMISSION__RANKING__WEIGHTS", json.dumps([weight | {"weight": 0.0}]))
    assert found() == ("warning", True)


def test_totals_that_could_contradict_outcomes_are_warned_of() -> None:
    """Equal weights of the objective and of a score; by default there is nothing to say."""
    even = [Weight(key=each, weight=1.0, component=each) for each in ("objective", "judge_scalar")]
    emission = EmissionConfig(ranking=RankingConfig(weights=tuple(even)))
    assert [each.result for each in checks.check_weights(Settings(emission=emission))] == ["warning"]
    assert checks.check_weights(Settings()) == []


def test_a_development_key_is_a_warning_and_is_not_made_by_looking(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Doctor changes nothing."""
    monkeypatch.setattr(checks, "default_directory", lambda: tmp_path / "keys")
    assert checks.check_key(Settings()).result == "warning"
    assert not (tmp_path / "keys").exists()


def test_a_signing_key_is_read(tmp_path: Path) -> None:
    """A key of one's own is fine; a file that is none is a problem."""
    save_key(generate_key("prod"), tmp_path / "prod.pem")
    assert checks.check_key(Settings(signing_key=str(tmp_path / "prod.pem"))).result == "ok"
    assert checks.check_key(Settings(signing_key=str(tmp_path / "absent.pem"))).result == "problem"


def test_a_full_disk_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kafka stops on one; a state directory that is not there yet is measured by its parents."""
    assert checks.check_disk(tmp_path / "a" / "b").result in ("ok", "warning")
    monkeypatch.setattr(checks, "DISK_PROBLEM", 2**62)
    assert checks.check_disk(tmp_path).result == "problem"


def test_another_partition_count_is_a_problem_that_names_the_way_out() -> None:
    """Everything about a rollout must meet in one partition."""
    found = {f"p.{topic.name}": 4 for topic in TOPICS}
    assert topics_check(Settings(prefix="p.", partitions=4), found).result == "ok"
    assert "BRAID_PARTITIONS=4" in topics_check(Settings(prefix="p.", partitions=8), found).advice


def test_a_missing_topic_is_a_problem() -> None:
    """It is named, and what creates it."""
    found = {topic.name: 8 for topic in TOPICS[1:]}
    check = topics_check(Settings(), found)
    assert (check.result, TOPICS[0].name in check.detail) == ("problem", True)
    assert "braid up" in check.advice


def test_the_doctor_says_what_pages_are_looked_at_with(tmp_path: Path) -> None:
    """A browser that is not where it is said to be is a warning with what to do; pages would be unknown."""
    program = tmp_path / "chromium"
    settings = Settings(verifier=VerifierConfig(browser=program))
    assert checks.check_browser(settings)[:2] == ("browser", "warning")
    assert str(program) in checks.check_browser(settings).detail
    program.touch()
    assert checks.check_browser(settings)[:3] == ("browser", "ok", str(program))


@pytest.mark.parametrize(
    ("trusted", "result", "said"),
    [
        (None, "warning", "every client that can write to Kafka, an agent, too, can write verdicts that count"),
        ({}, "warning", "no verdict counts"),
        ("local", "ok", "of this machine"),
        ({"builds": "0" * 64}, "ok", "builds"),
    ],
)
def test_the_doctor_says_whose_verdicts_count(trusted: Any, result: str, said: str) -> None:
    """A broker takes verdicts from every client, unless keys are named."""
    check = checks.check_trust(Settings(trusted_verifiers=trusted))
    assert check.result == result
    assert said in check.detail
