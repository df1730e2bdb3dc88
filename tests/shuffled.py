"""Lines of rollouts in every order: verdicts that repeat and contradict each other, checks, votes before, between and after."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

Lines = list[dict[str, Any]]

BUILDS = (
    {"status": "success", "exit_code": 0, "tests": {"passed": 9, "failed": 0, "skipped": 0, "total": 9}},
    {"status": "failure", "exit_code": 1, "tests": {"passed": 4, "failed": 5, "skipped": 0, "total": 9}},
    {"status": "running"},
)


def complete(seed: int, n: int) -> Lines:
    """Whole rollouts that say how many branches they have, in one heap."""
    chance = random.Random(seed)
    return _shuffled([_rollout(chance, f"whole-{seed}-{number}") for number in range(n)], chance)


def odd(seed: int, n: int) -> Lines:
    """Rollouts that settle only because their input ends: without an opening, from another system, cancelled, unfinished."""
    chance, heap = random.Random(seed), []
    for number in range(n):
        name = f"odd-{seed}-{number}"
        kind = ("unopened", "wire", "cancelled", "closed", "unfinished", "whole")[number % 6]
        lines = _wire(chance, name) if kind == "wire" else _rollout(chance, name)
        if kind == "unopened":
            lines = lines[1:]
        elif kind in ("cancelled", "closed"):
            lines.append({"type": kind.removesuffix("led") if kind == "cancelled" else "close", "rollout_id": name})
        elif kind == "unfinished":
            lines = [line for line in lines if line.get("branch_index") != 0 or line["type"] != "event"]
        heap.append(lines)
    return _shuffled(heap, chance)


def write(path: Path, lines: Lines) -> Path:
    """A file of these lines."""
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


def _rollout(chance: random.Random, name: str) -> Lines:
    branches = chance.randint(2, 4)
    opening: dict[str, Any] = {"type": "rollout", "rollout_id": name, "task": f"task of {name}", "branches": branches}
    if chance.random() < 0.3:
        opening["required"] = ["build", "lint"]
    lines = [opening]
    numbered = chance.random() < 0.5
    for index in range(branches):
        branch = {"rollout_id": name, "branch_index": index}
        for seq, event in enumerate(_events(chance, index)):
            lines.append({"type": "event", **branch, **({"seq": seq} if numbered else {}), "event": event})
        lines += [line | branch for line in _verdicts(chance)]
    return [*lines, *_votes(chance, name, branches)]


def _events(chance: random.Random, index: int) -> Iterator[dict[str, Any]]:
    yield {"event": "run_start", "data": {"task": "t"}, "timestamp_ms": 1_700_000_000_000}
    for step in range(chance.randint(1, 4)):
        call = f"c{index}-{step}"
        yield {
            "event": "tool_call",
            "data": {"toolName": "run", "args": {"n": step}, "callId": call, "stepIndex": step},
        }
        yield {"event": "tool_result", "data": {"callId": call, "output": "x" * chance.randint(1, 300)}}
    yield {"event": "final_answer", "data": {"answer": f"answer {index} {chance.random()}"}}


def _verdicts(chance: random.Random) -> Lines:
    found: Lines = [{"type": "build", **chance.choice(BUILDS)} for _ in range(chance.randint(0, 4))]
    found.append({"type": "build", **BUILDS[chance.randrange(2)]})
    found += [
        {"type": "check", "name": name, "status": chance.choice(("pass", "fail")), "score": chance.choice((None, 0.5))}
        for name in ("lint", "lint", "style")
    ]
    if chance.random() < 0.3:
        found.append({"type": "build", "verdict_id": "ci-1", **BUILDS[chance.randrange(2)]})
        found.append({"type": "check", "verdict_id": "ci-1", "name": "style", "status": "pass"})
    if chance.random() < 0.3:
        found.append({"type": "visual", "verdict": chance.choice(("pass", "fail"))})
    return found


def _votes(chance: random.Random, name: str, branches: int) -> Lines:
    return [
        {"type": "vote", "rollout_id": name, "a": a, "b": b, "order": order, "sample": sample, "judge": "m",
         "preferred": chance.choice(("a", "a", "b", "tie"))}
        for a in range(branches) for b in range(a + 1, branches) for order in ("ab", "ba") for sample in (0, 1)
    ]  # fmt: skip


def _wire(chance: random.Random, name: str) -> Lines:
    branches = chance.randint(2, 3)
    lines: Lines = [
        {"rollout_id": name, "branch_index": index, "task": "t", "final_answer": f"answer {index}",
         "tool_call_sequence": [{"tool_name": "run", "arguments": {"n": index}, "result": "y"}],
         "build_result": {"status": chance.choice(("pass", "fail"))}}
        for index in range(branches)
    ]  # fmt: skip
    return [*lines, *_votes(chance, name, branches)]


def _shuffled(heap: list[Lines], chance: random.Random) -> Lines:
    """All lines in any order; events without a seq stay in the order of their branch."""
    lines = [line for lines in heap for line in lines]
    ordered = {id(line): place for place, line in enumerate(lines)}
    chance.shuffle(lines)
    places: dict[tuple[str, int], list[int]] = {}
    for place, line in enumerate(lines):
        if line.get("type") == "event" and "seq" not in line:
            places.setdefault((line["rollout_id"], line["branch_index"]), []).append(place)
    for same in places.values():
        for place, line in zip(
            same, sorted((lines[at] for at in same), key=lambda each: ordered[id(each)]), strict=True
        ):
            lines[place] = line
    return lines
