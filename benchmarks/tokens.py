"""Bytes of tokens on the log and in rows: python -m benchmarks.tokens [--turns N] [--branches N]

Conversations of some turns, whose prompts begin with 4,000 ids and grow by 400 with every turn, of which 120 were sampled; ids of a
vocabulary of 150,000, log-probabilities of 32 bits. The requests themselves, side by side, have every prompt whole.
"""

import argparse
import json
import random
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas.codec.body import encode
from schemas.training import PpoRecord
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files

FIRST, SAMPLED, BETWEEN = 4000, 120, 280
VOCABULARY = 150_000


def branch(rollout: str, dice: random.Random, turns: int, *, tokens: bool) -> Iterator[dict[str, Any]]:
    """The lines of one branch."""
    place = {"type": "event", "rollout_id": rollout, "branch_index": 0}
    prompt = [dice.randrange(VOCABULARY) for _ in range(FIRST)]
    for turn in range(turns):
        ids = [dice.randrange(VOCABULARY) for _ in range(SAMPLED)]
        logprobs = [struct.unpack("<f", struct.pack("<f", -dice.expovariate(2)))[0] for _ in ids]
        told = {"tokens": {"prompt_ids": prompt, "ids": ids, "logprobs": logprobs}} if tokens else {}
        context = {"after": f"c{turn - 1}", "keep": 2 * turn} if turn else {}
        said = {f"u{turn}": "user", f"a{turn}": "assistant"}
        messages = [{"id": name, "role": role, "content": f"{turn}."} for name, role in said.items()]
        call = {
            "call_id": f"c{turn}",
            "context": {**context, "add": [f"u{turn}"]},
            "response": f"a{turn}",
            "model": "m",
            **told,
        }
        for kind, data in (("message", messages[0]), ("message", messages[1]), ("model_call", call)):
            yield {**place, "event": {"channel": "conversation", "event": kind, "data": data}}
        prompt = [*prompt, *ids, *[dice.randrange(VOCABULARY) for _ in range(BETWEEN)]]


def made(folder: Path, branches: int, turns: int, *, tokens: bool) -> tuple[int, int, int]:
    """Bytes of lines, of slices and of PPO rows of so many branches."""
    folder.mkdir()
    lines = folder / "lines.ndjson"
    with lines.open("w") as out:
        for number in range(branches):
            opening = {"type": "rollout", "rollout_id": f"r{number}", "task": "t", "branches": 1, "required": ["build"]}
            end = {"type": "end", "rollout_id": f"r{number}", "branch_index": 0}
            verdict = {
                "type": "build",
                "rollout_id": f"r{number}",
                "branch_index": 0,
                "status": "success",
                "exit_code": 0,
            }
            told = branch(f"r{number}", random.Random(number), turns, tokens=tokens)
            for line in (opening, *told, end, verdict):
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
    run_files([lines], folder / "out", Settings(), None)
    slices = sum(path.stat().st_size for path in (folder / "out" / "log").glob("rollouts.agent-events.v1/*"))
    rows = [PpoRecord.model_validate_json(line) for line in (folder / "out" / "ppo.jsonl").read_text().splitlines()]
    return lines.stat().st_size, slices, sum(len(encode(row)) for row in rows)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--branches", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        given = [made(Path(folder) / str(each), asked.branches, asked.turns, tokens=each) for each in (False, True)]
    in_stream = asked.branches * (FIRST + asked.turns * SAMPLED + (asked.turns - 1) * BETWEEN)
    in_requests = asked.branches * sum(FIRST + turn * (SAMPLED + BETWEEN) + SAMPLED for turn in range(asked.turns))
    print(
        f"{asked.branches} branches of {asked.turns} turns: {in_stream:,} tokens in streams, {in_requests:,} in requests"
    )
    for name, without, with_tokens in zip(("lines as JSON", "log, compressed", "PPO rows, Avro"), *given, strict=True):
        more = with_tokens - without
        print(
            f"  {name:16} {more:>12,} bytes  {more / in_stream:6.2f} a token of a stream  {more / in_requests:6.2f} a token sent"
        )


if __name__ == "__main__":
    main()
