"""The golden of an exact conversation: two branches of several turns, and the rows that were typed by hand for them.

The golden holds only the fields that the rules decide (tests/golden/chat/README.md); other fields of a row are not compared.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes import run_braid

GOLDEN = Path(__file__).parents[2] / "golden" / "chat"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    done = run_braid("run", GOLDEN / "chat.ndjson", "--out", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bad_lines"] == 0
    return folder


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def plain(value: Any) -> Any:
    """The value without nulls and empty arrays: a field that says nothing may be left out."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items() if part is not None and part != []}
    return [plain(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["sft", "dpo", "ppo"])
def test_an_exact_chat_gives_the_rows_that_were_typed_for_it(out: Path, name: str) -> None:
    """Every row says exactly which messages the model saw, which it said, and which conversation of the branch it is."""
    wanted = rows(GOLDEN / f"{name}.jsonl")
    decided = {field for row in wanted for field in row}
    found = [{field: row.get(field) for field in decided} for row in rows(out / f"{name}.jsonl")]
    assert [plain(row) for row in found] == [plain(row) for row in wanted]


def test_an_exact_chat_rejects_what_the_rules_keep_out(out: Path) -> None:
    """A conversation that repeats another of its rollout is kept out as its duplicate, a failing branch as not passing."""

    def kept_out(path: Path) -> set[tuple[str, tuple[int, ...], tuple[str, ...]]]:
        return {(row["kind"], tuple(row["branches"]), tuple(row["reasons"][:1])) for row in rows(path)}

    assert kept_out(out / "rejected.jsonl") == kept_out(GOLDEN / "rejected.jsonl")


def test_no_row_of_an_exact_chat_has_words_that_no_model_saw(out: Path) -> None:
    """The rollout's task is a label here: rows are made of calls and messages alone, without a provider's extras."""
    for name in ("sft", "dpo", "ppo"):
        for row in rows(out / f"{name}.jsonl"):
            said = json.dumps([row.get(field) for field in ("messages", "prompt", "completion", "chosen", "rejected")])
            assert "Find out which Python versions" not in said
            assert "c2ln" not in said
    assert rows(out / "sft.jsonl")
