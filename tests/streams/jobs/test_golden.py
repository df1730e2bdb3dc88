"""The golden of emission version 2: one realistic trajectory, with parallel calls, an error and a long output, and its rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from streams.cluster.config import Settings
from streams.cluster.signing_keys import signing_key
from streams.jobs.run.run import run_files

GOLDEN = Path(__file__).parents[2] / "golden" / "v2"
INPUT = Path(__file__).parents[2] / "sample" / "golden_trajectory.ndjson"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    run_files([INPUT], folder, Settings(), signing_key(Settings()))
    return folder


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("name", ["branches", "rankings", "sft", "dpo", "ppo", "rejected"])
def test_the_golden_trajectory_gives_exactly_these_rows(out: Path, name: str) -> None:
    """Every byte of every row is as it was agreed; a change here changes what people train on."""
    assert (out / f"{name}.jsonl").read_text("utf-8") == (GOLDEN / f"{name}.jsonl").read_text("utf-8")


def test_the_golden_trajectory_gives_exactly_this_evidence(out: Path) -> None:
    """The signed content of the evidence is as it was agreed, whatever key signs it."""
    found = rows(out / "evidence.jsonl")
    assert all(record.pop("signature")["alg"] == "ed25519" for record in found)
    assert found == rows(GOLDEN / "evidence.jsonl")


def test_the_chosen_trajectory_reads_as_a_person_would_write_it(out: Path) -> None:
    """Parallel calls share a message, an error keeps its code, a long output is cut, ids count up by position."""
    (row,) = rows(out / "sft.jsonl")
    messages = row["messages"]
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "tool", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    calls = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert calls == [f"call_{number}" for number in range(6)]
    assert messages[2]["content"].startswith("I'll read the function and find its callers")
    assert messages[4]["content"].startswith('{"matches":[{"path":"src/slug.py"')
    assert "[...12 lines omitted...]" in messages[6]["content"]
    assert len(messages[6]["content"].encode()) <= 800
    assert messages[8]["content"] == "error not_found: no such file: src/translit.py"
    assert messages[12]["content"].endswith("All 16 tests pass ✓.")


def test_the_pair_begins_where_the_branches_part(out: Path) -> None:
    """The prompt of the pair is the shared beginning, cut to just before an assistant message."""
    (row,) = rows(out / "dpo.jsonl")
    assert [message["role"] for message in row["prompt"]] == ["system", "user", "assistant", "tool", "tool"]
    assert row["chosen"][0]["role"] == row["rejected"][0]["role"] == "assistant"
    assert (row["chosen_branch"], row["rejected_branch"], row["basis"]) == (0, 1, "objective")
