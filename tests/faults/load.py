"""A load with a ledger: rollouts made from a seed, and what must come of each, whatever dies on the way."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from agents.facts.fact import Fact
from agents.hacks.verdict import HACKS
from agents.summarize.branch import raw_digest
from agents.summarize.event_reader import keep_slice
from schemas.events import AgentEvent, AgentEvents, fields_of
from schemas.jsontext import compact
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict, CheckVerdict

BRANCHES = 4


class Expected(NamedTuple):
    """The expected end of a rollout."""

    digests: dict[int, str]
    """By branch, the raw digest of the attempt that counts; none for a branch that never ends."""
    statuses: dict[int, str]
    """By branch, the objective status."""
    by_deadline: bool
    """Whether only the deadline can settle it."""
    awaited: tuple[str, ...] = ()
    """Verdicts that it settles without only at its deadline."""


class Load(NamedTuple):
    """Facts in the order in which they are sent, and the ledger."""

    facts: list[Fact]
    ledger: dict[str, Expected]


def make_load(seed: int, rollouts: int, deadline_ms: int = 20_000, overlap: int = 8, awaiting: float = 0.0) -> Load:
    """Rollouts of four branches: shuffled, duplicated, some retried, some with a branch that never ends.

    A share of them awaits verdicts `hacks`, which come long after everything else, or for one branch never.
    """
    chance = random.Random(seed)
    ledger: dict[str, Expected] = {}
    queues: list[list[Fact]] = []
    late: list[list[Fact]] = []
    for number in range(rollouts):
        rollout_id = f"load-{seed}-{number}"
        awaits = awaiting > 0 and chance.random() < awaiting
        facts, hacks, ledger[rollout_id] = _rollout(rollout_id, chance, deadline_ms, awaits=awaits)
        queues.append(facts)
        late.append(hacks)
    facts = []
    for at in range(0, rollouts + overlap, overlap):  # neighbours in time overlap, as live rollouts do
        facts += _mixed(queues[at : at + overlap], chance)
        facts += _mixed(late[max(0, at - overlap) : at], chance)
    return Load(facts, ledger)


def _mixed(queues: list[list[Fact]], chance: random.Random) -> Iterator[Fact]:
    waiting = [queue[::-1] for queue in queues if queue]
    while waiting:
        queue = chance.choice(waiting)
        yield queue.pop()
        waiting = [queue for queue in waiting if queue]


def _rollout(
    rollout_id: str, chance: random.Random, deadline_ms: int, *, awaits: bool
) -> tuple[list[Fact], list[Fact], Expected]:
    """Its facts, the verdicts `hacks` that come later, and its expected end."""
    endless = chance.random() < 0.1
    digests: dict[int, str] = {}
    statuses: dict[int, str] = {}
    streams: list[list[Fact]] = []
    hacks: list[Fact] = []
    for branch in range(BRANCHES):
        attempt = int(chance.random() < 0.15)
        stream: list[Fact] = []
        if (
            attempt
        ):  # a first attempt that broke off without a word; one that says its end may settle before it is retried
            broken = _events(chance, "status", {"phase": "working"})
            stream += _slices(rollout_id, branch, 0, broken, chance)
        never = endless and branch == BRANCHES - 1
        events = _events(chance, "final_answer", {"answer": f"answer {chance.random()}"})
        if never:
            events = events[:-1]
        stream += _slices(rollout_id, branch, attempt, events, chance)
        passes = chance.random() < 0.5
        if never:
            statuses[branch] = "unknown"
        else:
            digests[branch] = raw_digest([keep_slice([fields_of(event) for event in events], 0, 0, redacting=False)])
            statuses[branch] = "pass" if passes else "fail"
        verdict = BuildVerdict(
            rollout_id=rollout_id, branch_index=branch, attempt=attempt, verdict_id=f"{rollout_id}/{branch}",
            status="success" if passes else "failure", exit_code=0 if passes else 1,
        )  # fmt: skip
        # Verdicts have a topic of their own: one may be appended before the branch's first event.
        stream.insert(chance.randrange(len(stream) + 1), verdict)
        streams.append(stream)
        if awaits and not never:
            hacks.append(CheckVerdict(
                rollout_id=rollout_id, branch_index=branch, attempt=attempt, verdict_id=f"{rollout_id}/{branch}/hacks",
                name=HACKS, status=chance.choice(("pass", "unknown")),
            ))  # fmt: skip
    awaited = (HACKS,) if awaits else ()
    if awaits and chance.random() < 0.2:
        hacks.pop(chance.randrange(len(hacks)))
        endless = True
    opened = Lifecycle(
        opened=RolloutOpened(
            rollout_id=rollout_id, task="load", branches=BRANCHES, awaited=awaited,
            deadline_ms=deadline_ms if endless else 600_000,
        )
    )  # fmt: skip
    return [opened, *_mixed(streams, chance)], hacks, Expected(digests, statuses, endless, awaited)


def _events(chance: random.Random, last: str, data: dict[str, object]) -> list[AgentEvent]:
    events = []
    for step in range(chance.randrange(2, 6)):
        call = {"toolName": "run", "callId": f"c{step}", "args": {"n": chance.randrange(1000)}, "stepIndex": step}
        result = {"callId": f"c{step}", "output": "line\n" * chance.randrange(1, 200)}
        events += [
            ("thinking_delta", {"delta": f"step {step}", "step": step}),
            ("tool_call", call),
            ("tool_result", result),
        ]
    return [
        AgentEvent(channel="tool", event=kind, data=compact(value), timestamp_ms=at)
        for at, (kind, value) in enumerate([*events, (last, data)])
    ]


def _slices(rollout_id: str, branch: int, attempt: int, events: list[AgentEvent], chance: random.Random) -> list[Fact]:
    """Slices of random size, some sent twice, some out of order."""
    slices: list[Fact] = []
    at = 0
    while at < len(events):
        size = chance.randrange(1, 5)
        slices.append(
            AgentEvents(
                rollout_id=rollout_id,
                branch_index=branch,
                attempt=attempt,
                first_seq=at,
                events=tuple(events[at : at + size]),
            )
        )
        at += size
    if len(slices) > 2 and chance.random() < 0.2:
        slices[0], slices[1] = slices[1], slices[0]
    if chance.random() < 0.3:
        slices.insert(chance.randrange(1, len(slices) + 1), slices[0])
    return slices
