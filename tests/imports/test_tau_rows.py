"""tau-bench through `braid run`: rows hold what the model saw, in its order, and nothing of the simulated user's instruction."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from agents.redaction.redaction import redact
from tests.agents.formats.test_openai_rules import CHAT
from tests.imports.test_counts import paths_of
from tests.processes import run_braid


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run, with the exports."""
    place = tmp_path_factory.mktemp("tau") / "out"
    done = run_braid("import", "tau-bench", *paths_of("tau-bench/*.json"), "--to", "run", "--out", place)
    assert done.returncode == 0, done.stderr
    for name in ("openai-sft", "trl-sft", "trl-dpo"):
        done = run_braid("export", "--format", name, "--from-dir", place, "--out", place.parent / name)
        assert done.returncode == 0, done.stderr
    return place


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def runs() -> list[dict[str, Any]]:
    """The runs of the sample."""
    found: list[dict[str, Any]] = orjson.loads(paths_of("tau-bench/*.json")[0].read_bytes())
    return found


def test_no_row_contains_the_instruction(out: Path) -> None:
    """The simulated user's instruction is in no row of any kind, and in no exported file."""
    instructions = [run["info"]["task"]["instruction"] for run in runs()]
    files = [out / f"{kind}.jsonl" for kind in ("sft", "dpo", "ppo")]
    files += [path for name in ("openai-sft", "trl-sft", "trl-dpo") for path in (out.parent / name).glob("*.jsonl")]
    for path in files:
        text = path.read_text("utf-8")
        for said in instructions:
            assert json.dumps(said, ensure_ascii=False)[1:-1] not in text, path


def test_every_message_is_in_its_place(out: Path) -> None:
    """The messages of a row are those of the run, role by role and text by text; only trailing user messages are left out."""
    told = {
        (run["task_id"], run["trial"]): [
            (message["role"], redact(message.get("content") or "").text or None)
            for message in run["traj"]
            if message["role"] != "system"
        ]
        for run in runs()
    }
    seen = 0
    for row in rows(out / "ppo.jsonl"):
        said = [
            (m["role"], m.get("content") or None) for m in [*row["prompt"], *row["completion"]] if m["role"] != "system"
        ]
        fitting = [full for full in told.values() if full[: len(said)] == said]
        assert fitting, said[:3]
        left = fitting[0][len(said) :]
        assert all(role == "user" for role, _ in left)
        seen += 1
    assert seen == 16


def test_rows_hold_openai_rules_with_user_turns_between(out: Path) -> None:
    """Every row is a valid training example of OpenAI's, with more than one user message."""
    found = [row for path in (out.parent / "openai-sft").glob("train-*.jsonl") for row in rows(path)]
    assert found
    for row in found:
        jsonschema.validate(row, CHAT)
        assert sum(message["role"] == "user" for message in row["messages"]) > 1


def test_a_pair_has_a_prompt_that_both_sides_share(out: Path) -> None:
    """Prompt and chosen side, and prompt and rejected side, are beginnings of two real runs."""
    full = [
        [
            (message["role"], redact(message.get("content") or "").text or None)
            for message in run["traj"]
            if message["role"] != "system"
        ]
        for run in runs()
    ]
    pairs = rows(out / "dpo.jsonl")
    assert pairs
    for pair in pairs:
        for side in ("chosen", "rejected"):
            said = [
                (m["role"], m.get("content") or None) for m in [*pair["prompt"], *pair[side]] if m["role"] != "system"
            ]
            assert any(each[: len(said)] == said for each in full)
