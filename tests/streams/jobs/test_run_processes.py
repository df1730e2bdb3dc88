"""`braid run` on several processes: the same bytes for any number, and nothing left behind when one of them is stopped."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import orjson
import psutil
import pytest

from streams.log.files import SPOOL
from streams.log.input_lines import SIDECAR
from streams.log.manifest import LOG_MANIFEST
from streams.log.topics import FACTS
from tests.conftest import Braid

SECONDS = 60
"""How long to wait for something that has to happen."""


def wire(rollout: int, branch: int) -> dict[str, object]:
    """A branch of a rollout, in one record; its rollout_id is not the first member."""
    return {
        "branch_index": branch, "rollout_id": f"r{rollout}", "task": "t", "final_answer": f"answer {branch}",
        "tool_call_sequence": [{"tool_name": "run", "arguments": {"n": branch}, "result": "ok " * 20}],
        "build_result": {"status": ("success", "failure")[branch % 2], "exit_code": branch % 2},
    }  # fmt: skip


def sample() -> bytes:
    """Rollouts in both forms of lines, interleaved, with every kind of bad line between them."""
    lines = [orjson.dumps(wire(rollout, branch)) for branch in range(3) for rollout in range(40)]
    for number in range(40):
        where = {"rollout_id": f"n{number}", "branch_index": 0}
        lines.append(
            orjson.dumps({"type": "event", **where, "event": {"event": "final_answer", "data": {"answer": "yes"}}})
        )
    lines[7:7] = [
        b'{"rollout_id":"r1"',
        b'{"type":"event","rollout_id":"r2","rollout_id":"r3"}',
        b"[1]",
        b'{"type":"end"}',
    ]
    lines[30:30] = [b'{"rollout_id":"r\xff","branch_index":0}', b'{"rollout_id":"r5","type":"nothing"}']
    lines[90:90] = [
        b'{"rollout_id":"r3","branch_index":"x","final_answer":"a"}',
        b'{"a":{"rollout_id":"r4"},"final_answer":""}',
    ]
    return b"\n".join([*lines, *unusual()])


def unusual() -> list[bytes]:
    """Lines whose rollout is not where most have it: behind everything else, behind another one's, escaped, with spaces."""
    last = {name: value for name, value in wire(1, 4).items() if name != "rollout_id"} | {"rollout_id": "r1"}
    escaped = orjson.dumps(wire(2, 4)).replace(b'"rollout_id":"r2"', b'"rollout_\\u0069d":"\\u0072\\u0032"')
    return [
        orjson.dumps({"meta": {"rollout_id": "r9"}} | last),
        orjson.dumps({"seen": [{"rollout_id": "r8"}], "note": '","rollout_id":"r7"'} | wire(3, 4)),
        escaped,
        orjson.dumps(wire(4, 4), option=orjson.OPT_INDENT_2).replace(b"\n", b"\t") + b"\r",
        orjson.dumps(wire(5, 4) | {"rollout_id": 'r"5\\ \u00e9\U0001f600'}) + b"\r",
        b" \r",
        b'{"rollout_id":"r6","rollout_\\u0069d":"r7","branch_index":4,"final_answer":"twice"}',
        orjson.dumps(wire(6, 4)),  # the last line has no end
    ]


def ran(folder: Path, *words: str) -> dict[str, bytes]:
    """Run the sample from standard input, which has 32 partitions; returns all files by name."""
    command = [sys.executable, "-m", "streams.cli", "run", "-", "--out", str(folder), "--keep-going", *words]
    subprocess.run(command, input=sample(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, bytes]]:
    """All files of the sample, by the number of processes that made them."""
    place = tmp_path_factory.mktemp("processes")
    return {number: ran(place / str(number), "--processes", str(number)) for number in (1, 2, 3)}


def test_any_number_of_processes_gives_the_same_bytes(found: dict[int, dict[str, bytes]]) -> None:
    """Log, JSON lines, sidecar and the signed manifest: everything."""
    one, *others = found.values()
    assert LOG_MANIFEST in one
    assert [other == one for other in others] == [True, True]


MADE = "6c92212814d3cee34a229a3fdbb989672bd9b1095667456a537079a7676210c1"
"""Of all files but the signed ones and the facts, which are written with the newest schema."""

FACT_FILES = tuple(f"log/{topic.name}/" for topic in FACTS)


def test_the_sample_gives_the_bytes_that_it_always_gave(found: dict[int, dict[str, bytes]]) -> None:
    whole = sha256()
    for name, content in sorted(found[2].items()):
        if name != LOG_MANIFEST and "evidence" not in name and not name.startswith(FACT_FILES):
            whole.update(f"{name} {sha256(content).hexdigest()}\n".encode())
    assert whole.hexdigest() == MADE


def test_bad_lines_are_kept_in_the_order_of_the_input(found: dict[int, dict[str, bytes]]) -> None:
    """Those that cannot be read, by file and line; then those that are no facts."""
    entries = [orjson.loads(line) for line in found[2][SIDECAR].splitlines()]
    assert [entry["line"] for entry in entries[:7]] == [8, 9, 10, 11, 31, 92, 175]
    assert {entry["line"] for entry in entries[7:]} == {32, 91}


def test_rows_without_evidence_and_redaction(tmp_path: Path, braid: Braid) -> None:
    """The rankings stay; there is no evidence, and what looks like a secret stays in the rows."""
    lines = tmp_path / "lines.jsonl"
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    lines.write_bytes(b"".join(orjson.dumps(wire(1, n) | {"final_answer": f"{secret} {n}"}) + b"\n" for n in range(2)))
    code, counts, _ = braid("run", lines, "--out", tmp_path / "out", "--json", "--no-evidence", "--set", "redact=false")
    assert (code, counts["aep"], counts["rollouts"], counts["dpo"]) == (0, 0, 1, 1)
    assert (tmp_path / "out" / "evidence.jsonl").read_bytes() == b""
    assert secret in (tmp_path / "out" / "dpo.jsonl").read_text()


@contextmanager
def reading(out: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """A run with two processes that waits for its standard input."""
    out.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "streams.cli", "run", "-", "--out", str(out), "--processes", "2"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - nothing else runs here
    )  # fmt: skip
    children: list[psutil.Process] = []
    try:
        until(lambda: any(out.glob(f"{SPOOL}*/*")))
        children = psutil.Process(process.pid).children()
        assert len(children) == 2
        yield process, children
    finally:
        for each in children:
            if each.is_running():
                each.kill()
        process.kill()
        process.communicate()


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def fold_with_one(process: subprocess.Popen[bytes], stopped: psutil.Process, out: Path) -> None:
    """Let the run read everything and fold, while one of its processes is stopped: it cannot come to its end."""
    stopped.suspend()
    assert process.stdin is not None
    process.stdin.write(sample())
    process.stdin.close()
    process.stdin = None
    until(lambda: any(out.glob("log/*/*.avro")))


def gone(children: list[psutil.Process]) -> bool:
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("folding", [False, True])
def test_a_stopped_run_leaves_no_process_and_nothing_that_passes_for_a_result(
    number: signal.Signals, folding: bool, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with reading(out) as (process, children):
        if folding:
            fold_with_one(process, children[0], out)
        os.kill(process.pid, number)
        _, said = process.communicate(timeout=SECONDS)
        assert (process.returncode, said) == (128 + number, b"")
        assert gone(children)
    assert not (out / LOG_MANIFEST).exists()
    assert [*out.glob(f"{SPOOL}*"), *out.rglob("*.part"), *out.glob("*.jsonl")] == []


def test_a_killed_process_is_an_error_with_its_partition(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with reading(out) as (process, children):
        children[0].kill()
        _, said = process.communicate(sample(), timeout=SECONDS)
        assert process.returncode == 1
        assert said.startswith(b"braid: partition ")
        assert b"its process was killed by SIGKILL before it was done" in said
        assert said.endswith(b"run the command again\n")
        assert gone(children)
    assert not (out / LOG_MANIFEST).exists()
    assert [*out.glob(f"{SPOOL}*"), *out.rglob("*.part"), *out.glob("*.jsonl")] == []


@pytest.mark.parametrize("folding", [False, True])
def test_processes_end_when_the_run_is_killed(
    folding: bool, tmp_path: Path, found: dict[int, dict[str, bytes]]
) -> None:
    """The next run into the directory replaces what is left."""
    out = tmp_path / "out"
    with reading(out) as (process, children):
        if folding:
            fold_with_one(process, children[0], out)
        process.kill()
        children[0].resume()
        until(lambda: gone(children))
    assert not (out / LOG_MANIFEST).exists()
    assert ran(out, "--processes", "2") == found[1]
