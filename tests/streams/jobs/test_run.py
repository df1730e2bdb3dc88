"""`braid run` on its own: what does not count is kept and counted, the same files give the same bytes."""

from pathlib import Path

import orjson

from agents.summarize.event_reader import keep
from agents.summarize.pieces import Answer
from schemas.events import AgentEvent
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from streams.log.container import read_partition
from streams.log.letters import read_letter
from streams.log.topics import DEAD_LETTERS
from tests.conftest import Braid

ANSWER = {"event": "final_answer", "data": {"answer": "yes"}}


def write(path: Path, *lines: dict[str, object]) -> Path:
    path.write_bytes(b"\n".join(orjson.dumps({"rollout_id": "r"} | line) for line in lines))
    return path


def test_facts_of_a_branch_that_was_not_announced_are_dead_letters(tmp_path: Path) -> None:
    """Events and a verdict of branch 7 of a rollout of one branch are kept with their reason, bytes untouched."""
    lines = write(
        tmp_path / "lines.ndjson",
        {"type": "rollout", "task": "t", "branches": 1, "required": []},
        {"type": "event", "branch_index": 0, "event": ANSWER},
        {"type": "event", "branch_index": 7, "event": ANSWER},
        {"type": "build", "branch_index": 7, "status": "success", "exit_code": 0},
    )
    counts = run_files([lines], tmp_path / "out", Settings(), None)
    assert (counts.branches, counts.dead_letters, counts.bad_lines) == (1, 2, 0)
    stored = list(read_partition(tmp_path / "out" / "log", DEAD_LETTERS.name, 0))
    letters = [read_letter(record.key, record.value, record.headers) for record in stored]
    assert {letter.reason for letter in letters} == {"branch_out_of_range"}
    for letter in letters:
        originals = list(read_partition(tmp_path / "out" / "log", letter.topic, letter.partition))
        assert letter.value == originals[letter.offset].value


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    """No clock and no randomness reaches an output: two runs differ in nothing."""
    lines = write(
        tmp_path / "l",
        {"type": "rollout", "task": "t", "branches": 1},
        {"type": "event", "branch_index": 0, "event": ANSWER},
    )
    for name in ("one", "two"):
        run_files([lines], tmp_path / name, Settings(), None)
    outputs = [{path.name: path.read_bytes() for path in (tmp_path / name).glob("*.jsonl")} for name in ("one", "two")]
    assert outputs[0] == outputs[1]
    logs = [
        sorted((path.name, path.read_bytes()) for path in (tmp_path / name / "log").rglob("*.avro"))
        for name in ("one", "two")
    ]
    assert logs[0] == logs[1]


def test_repeated_keys_and_verdicts_that_mean_nothing_are_reported(tmp_path: Path, braid: Braid) -> None:
    """A line with a repeated key is bad; a verdict without a meaning is taken, and counted with its place."""
    lines = tmp_path / "lines.ndjson"
    lines.write_text(
        '{"type":"rollout","rollout_id":"r","task":"t","branches":1,"required":["build"]}\n'
        '{"type":"build","rollout_id":"r","branch_index":0,"status":"success"}\n'
        '{"type":"build","rollout_id":"r","branch_index":0,"status":"failure","status":"success","exit_code":0}\n'
    )
    code, counts, said = braid("run", lines, "--out", tmp_path / "out", "--json")
    assert (code, counts["bad_lines"], counts["warnings"], counts["passes"]) == (1, 1, 1, 0)
    assert f"{lines}:3: status: the key stands twice in this object; send it once" in said
    assert f"1 verdict is neither pass nor fail: {lines}:2: exit_code: unknown: a success without exit_code" in said
    code, _, said = braid("rank", lines)
    assert code == 1
    assert f"{lines}:3: status: the key stands twice in this object" in said


def test_facts_on_the_log_are_read_as_before() -> None:
    """Of repeated keys in an event that was written long ago, the last one counts."""
    event = AgentEvent(channel="text", event="final_answer", data='{"answer":"first","answer":"last"}', timestamp_ms=0)
    kept = keep(event, redacting=False)
    assert isinstance(kept, Answer)
    assert kept.text == "last"
