"""`--dedupe`: rows that repeat an earlier row are left out with their reason, the same ones every time, and groups stay whole."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agents.formats import FORMATS
from streams.cluster.config import Settings
from streams.jobs.export.duplicates import FILE, DuplicateError, Duplicates
from streams.jobs.export.export import export
from streams.jobs.export.recipe import ExportError, Recipe
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader
from tests.agents.formats.rollouts import encoded, mixed

WORDS = (
    "The build fails because the parser drops the last column of a table when a row ends in an empty field. "
    "The old tests never had such a row, so nobody saw it until the new sample came in last week. "
    "A row is split at each comma outside of quotes now, and an empty field at its end counts as a column. "
    "All thirteen tests pass, the two new ones included, and so I changed it"
)


def lines(rollout_id: str, words: str) -> list[dict[str, Any]]:
    """A rollout with one passing branch that says these words."""
    place = {"rollout_id": rollout_id, "branch_index": 0}
    return [
        {"type": "rollout", "rollout_id": rollout_id, "task": "Mend the table", "branches": 1, "required": ["build"]},
        {"type": "event", **place, "event": {"event": "final_answer", "data": {"answer": words}}},
        {"type": "end", **place},
        {"type": "build", **place, "status": "success", "exit_code": 0},
    ]


def log_of(folder: Path, told: dict[str, str]) -> Path:
    text = b"".join(encoded(lines(name, words)) for name, words in told.items())
    folder.mkdir(parents=True)
    (folder / "lines.ndjson").write_bytes(text)
    run_files([folder / "lines.ndjson"], folder / "log", Settings(), None)
    return folder / "log"


def exported(log: Path, out: Path, form: str = "trl-sft", **more: Any) -> tuple[set[str], dict[str, int]]:
    counts = asyncio.run(export(FileReader(log), out, Recipe.of(FORMATS[form], None, **more)))
    rows = [json.loads(line) for path in sorted(out.glob("train-*.jsonl")) for line in path.read_text().splitlines()]
    return {row["rollout_id"] for row in rows}, counts.rejected


TOLD = {
    "a": WORDS,
    "b": WORDS,
    "c": WORDS.replace("changed it", "mended it"),
    "d": "Nothing of the kind: the tests were wrong, not the code",
}


@pytest.mark.parametrize(("dedupe", "kept", "reason"), [("exact", 3, "duplicate"), ("near", 2, "near_duplicate")])
def test_rows_that_repeat_another_are_left_out(tmp_path: Path, dedupe: str, kept: int, reason: str) -> None:
    log = log_of(tmp_path / "in", TOLD)
    found, rejected = exported(log, tmp_path / "one", dedupe=dedupe)
    assert (len(found), "d" in found, rejected[reason]) == (kept, True, 4 - kept)
    assert (exported(log, tmp_path / "two", dedupe=dedupe))[0] == found


def test_a_long_system_prompt_makes_no_near_duplicates(tmp_path: Path) -> None:
    """Rows of one agent share its system prompt, and are told apart by what is said under it."""
    opened = [
        {"type": "rollout", "rollout_id": name, "task": task, "branches": 1, "required": ["build"],
         "system_prompt": WORDS * 5}
        for name, task in (("a", "Mend the table"), ("b", "Sort the list"))
    ]  # fmt: skip
    told = [line for name in ("a", "b") for line in lines(name, f"It is done, says {name}")[1:]]
    (tmp_path / "lines.ndjson").write_bytes(encoded([*opened, *told]))
    run_files([tmp_path / "lines.ndjson"], tmp_path / "log", Settings(), None)
    found, rejected = exported(tmp_path / "log", tmp_path / "out", dedupe="near")
    assert (found, rejected.get("near_duplicate", 0)) == ({"a", "b"}, 0)


def test_without_it_all_rows_stay(tmp_path: Path) -> None:
    assert len((exported(log_of(tmp_path / "in", TOLD), tmp_path / "out"))[0]) == 4


@pytest.mark.parametrize("dedupe", ["exact", "near"])
def test_groups_stay_whole(tmp_path: Path, dedupe: str) -> None:
    """Equal samples of one task are members of its group; a second group that says the same is left out as a whole."""
    log = tmp_path / "in"
    log.mkdir()
    (log / "lines.ndjson").write_bytes(encoded([*mixed("one", task="Do it"), *mixed("two", task="Do it")]))
    run_files([log / "lines.ndjson"], log / "log", Settings(), None)
    everything, _ = exported(log / "log", tmp_path / "all", "trl-kto")
    assert everything == {"one", "two"}
    found, rejected = exported(log / "log", tmp_path / "some", "trl-kto", dedupe=dedupe)
    assert len(found) == 1
    kept = (tmp_path / "some" / "train-00000.jsonl").read_text().count("\n")
    assert (tmp_path / "all" / "train-00000.jsonl").read_text().count("\n") == 2 * kept > 2
    assert rejected["duplicate" if dedupe == "exact" else "near_duplicate"] >= kept


@pytest.mark.parametrize("dedupe", ["exact", "near"])
def test_what_was_kept_is_known_to_the_next_export(tmp_path: Path, dedupe: Any) -> None:
    first = Duplicates(dedupe)
    assert [first._takes(text) for text in (WORDS, WORDS, "other words")] == [True, False, True]
    count, digest = first.save(tmp_path)
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes() + b"of an export that was killed")
    again = Duplicates(dedupe)
    again.load(tmp_path, count, digest)
    assert [again._takes(text) for text in (WORDS, "other words", "new words here")] == [False, False, True]
    with pytest.raises(DuplicateError, match="not what the checkpoint says"):
        Duplicates(dedupe).load(tmp_path, count, "0" * 64)


def test_formats_of_whole_branches_have_no_duplicates_to_leave_out() -> None:
    with pytest.raises(ExportError, match="whole branches"):
        Recipe.of(FORMATS["atif"], None, dedupe="exact")


@pytest.mark.long
def test_near_duplicates_of_100_000_rows_are_the_same_twice() -> None:
    import random
    import time

    chosen = random.Random(1)
    vocabulary = [f"word{number}" for number in range(5000)]
    texts = [" ".join(chosen.choices(vocabulary, k=60)) for _ in range(50_000)]
    near = [" ".join([*text.split()[:-1], "changed"]) for text in texts]
    both = [text for pair in zip(texts, near, strict=True) for text in pair]
    began = time.process_time()
    runs = []
    for _ in range(2):
        duplicates = Duplicates("near")
        runs.append([duplicates._takes(text) for text in both])
    rate = 2 * len(both) / (time.process_time() - began)
    assert runs[0] == runs[1]
    left_out = runs[0][1::2].count(False)
    print(
        f"{len(both):,} rows twice: {rate:,.0f} rows a second, {left_out:,} of {len(near):,} near duplicates left out"
    )
    assert all(runs[0][::2])
    assert left_out > 0.98 * len(near)
