"""How fast audits are, each beside the plain work that they contain, in one run.

    python benchmarks/audit.py [--records 10000] [--rows 20000] [--rollouts 2000]

`audit compare` of 199 items (reading aside) beside a bootstrap of 10,000 draws (numpy where it is installed, else Python); verifying
and reporting evidence beside `json.loads` and Ed25519 verification alone of the same lines; triage in rows a second; and the most
memory while a log of many branches is audited, at two sizes: it must not grow with the log. Seconds are of processor time.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from agents.audit.comparison import Side, compare, comparison_json
from agents.audit.eval_row import EvalLog, EvalRow
from agents.audit.report import AuditReport
from agents.audit.triage import triage
from agents.evidence.build import json_view, sign
from agents.evidence.keys import generate_key
from agents.evidence.signing import signed_bytes
from agents.evidence.verification import Verifier, read_record
from schemas.evidence import AepAction, AepRecord

DRAWS = 10_000


def seconds(work: Callable[[], Any]) -> float:
    """Processor seconds of one run."""
    began = time.process_time()
    work()
    return time.process_time() - began


def logs() -> tuple[EvalLog, EvalLog]:
    """Two logs with the counts of the case study."""
    cells = [(1.0, 1.0)] * 108 + [(1.0, 0.0)] * 29 + [(0.0, 1.0)] * 27 + [(0.0, 0.0)] * 35
    text = "3 + 4 = 7 and 7 * 5 = 35. Then we take 5 away, which leaves 30. The answer is 30. " * 4
    made = [
        EvalLog(
            name,
            "lines",
            tuple(EvalRow(f"q{at:03}", pair[side], expected="31", text=text) for at, pair in enumerate(cells)),
        )
        for side, name in enumerate("ab")
    ]
    return made[0], made[1]


def bench_compare() -> None:
    """All of a comparison, beside the draws alone."""
    first, second = logs()

    def ours() -> None:
        found = compare(Side.of(first), Side.of(second))
        comparison_json(found, found.p)

    differences = [-1] * 29 + [1] * 27 + [0] * 143
    try:
        import numpy as np

        values, generator = np.array(differences), np.random.default_rng(0)
        plain, name = lambda: values[generator.integers(0, 199, (DRAWS, 199))].mean(axis=1), "numpy"
    except ImportError:
        random = Random(0)
        plain, name = lambda: [sum(random.choices(differences, k=199)) for _ in range(DRAWS)], "Python"
    own, theirs = min(seconds(ours) for _ in range(5)), min(seconds(plain) for _ in range(5))
    print(
        f"compare 199 items, triage and all: {own * 1000:.1f} ms; {DRAWS:,} draws in {name} alone: {theirs * 1000:.1f} ms"
    )


def bench_report(records: int) -> None:
    """Verify and report, beside parsing and Ed25519 alone."""
    key = generate_key("bench")
    lines, held = list[bytes](), list[tuple[bytes, bytes]]()
    for at in range(records):
        record = evidence(at)
        signed = sign(record, key, signed_bytes(json_view(record)))
        assert signed.signature is not None
        lines.append(json.dumps(json_view(signed)).encode())
        held.append((signed_bytes(json_view(record)), base64.b64decode(signed.signature.sig)))
    public = Ed25519PublicKey.from_public_bytes(key.public)

    def plain() -> None:
        for line, (message, signature) in zip(lines, held, strict=True):
            json.loads(line)
            public.verify(signature, message)

    def ours() -> dict[str, Any]:
        report = AuditReport(Verifier({"bench": key.public}))
        for at, line in enumerate(lines):
            report.add_evidence(read_record(line, f"line:{at}"))
        return report.plain()

    found = ours()
    assert found["evidence"]["authenticity"] == {"inline-valid": records}, found["evidence"]
    own, theirs = seconds(ours), seconds(plain)
    print(
        f"verify and report {records:,} evidence records: {own:.2f} s; json.loads and Ed25519 alone: {theirs:.2f} s ({own / theirs:.1f} x)"
    )


def evidence(at: int) -> AepRecord:
    """A record with as many actions as a short branch has."""
    actions = tuple(
        AepAction(
            action_id=f"call-{each}", tool_name="run", state_changing=True, arguments_digest="0" * 64, result_digest="1" * 64,
            side_effect_class="mutate-external", timestamp_ms=1_700_000_000_000 + each,
        )
        for each in range(6)
    )  # fmt: skip
    return AepRecord(
        record_id="-", rollout_id=f"r{at}", run_id=f"r{at}/b0/a0", model_id="m", raw_digest="2" * 64, actions=actions,
        created_at_ms=1_700_000_000_000, run_side_effect_class_max="mutate-external",
    )  # fmt: skip


def bench_triage(rows: int) -> None:
    """Rows a second, all of them wrong."""
    first, _ = logs()
    row = first.rows[0]
    many = tuple(EvalRow(str(at), 0.0, expected="31", text=row.text) for at in range(rows))
    spent = seconds(lambda: triage(many))
    print(f"triage: {rows / spent:,.0f} rows/s")


def bench_memory(rollouts: int) -> None:
    """The most memory of `braid audit verifiers`, at two sizes of a log of four branches a rollout.

    `braid run` keeps 32 MB of input in a partition; audits hold the open rollouts of one.
    """
    for size in (rollouts // 2, rollouts):
        with tempfile.TemporaryDirectory() as folder:
            out = make_log(Path(folder), size)
            words = [sys.executable, "-m", "streams.cli", "audit", "verifiers", "--from-dir", out, "--json"]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, _, used = os.wait4(process.pid, 0)
            spent = used.ru_utime + used.ru_stime
            print(f"audit of {size * 4:,} branches: at most {used.ru_maxrss / 1024:.0f} MiB, {spent:.1f} s")


def make_log(folder: Path, rollouts: int) -> Path:
    """A log as `braid run` leaves it."""
    with (folder / "lines.ndjson").open("w") as out:
        for at in range(rollouts):
            for line in lines_of(f"r{at}"):
                out.write(json.dumps(line) + "\n")
    words = [
        sys.executable,
        "-m",
        "streams.cli",
        "run",
        folder / "lines.ndjson",
        "--out",
        folder / "out",
        "--json",
        "--no-evidence",
    ]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "out"


def lines_of(rollout_id: str) -> list[dict[str, Any]]:
    """Four branches of one call each."""
    lines: list[dict[str, Any]] = [
        {"type": "rollout", "rollout_id": rollout_id, "task": "t", "branches": 4, "required": ["build"]}
    ]
    for index in range(4):
        place = {"rollout_id": rollout_id, "branch_index": index}
        call = {"event": "tool_call", "data": {"toolName": "run", "callId": "c", "args": {"command": f"ls {index}"}}}
        answer = {"event": "final_answer", "data": {"answer": f"done {index}"}}
        lines += [{"type": "event", **place, "event": each} for each in (call, answer)]
        lines.append(
            {"type": "build", **place, "status": "success" if index else "failure", "exit_code": int(not index)}
        )
    return lines


def main() -> None:
    """Run all, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rollouts", type=int, default=25_000)
    asked = parser.parse_args()
    bench_compare()
    bench_report(asked.records)
    bench_triage(asked.rows)
    bench_memory(asked.rollouts)


if __name__ == "__main__":
    main()
