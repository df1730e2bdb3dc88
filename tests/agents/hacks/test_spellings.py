"""Many spellings of each family, and their honest neighbours: rules see what a thing does, however it is written."""

import json
from collections.abc import Iterator

import pytest

from agents.hacks.acts import event_signals
from agents.hacks.file_rules import case_of, file_signals
from agents.importers.lines import LineReader
from agents.rollouts.branch_records import ended_branch
from agents.rollouts.rollout import Rollout
from schemas.emission import EmissionConfig
from schemas.events import AgentEvents
from schemas.rankings import HackSignal
from tests.agents.hacks.spellings import TASKS, Spelling, lines_of, spellings

KINDS = 6
"""Of agents, which write their edits in different ways."""


def as_bytes(texts: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in texts.items()}


def from_files(each: Spelling) -> tuple[HackSignal, ...]:
    task = TASKS[each.task]
    return file_signals(
        case_of(as_bytes(task["start"]), as_bytes(each.left), as_bytes(task["tests"]), task["instruction"])
    )


def from_events(each: Spelling, kind: int) -> tuple[HackSignal, ...]:
    reader, rollout = LineReader(), Rollout("r")
    for number, line in enumerate(lines_of(each, kind)):
        for fact in reader.read(json.dumps(line)):
            assert isinstance(fact, AgentEvents)
            rollout.add(fact, number, ("events", 0, number))
    record = ended_branch(rollout, 0, 0, EmissionConfig()).record
    return event_signals(record.tool_calls, record.final_answer, TASKS[each.task]["instruction"])


def wrong(found: Iterator[tuple[Spelling, tuple[HackSignal, ...]]]) -> list[tuple[str, str, list[str]]]:
    """Cheats that are not seen in their family, and honest branches that are suspected."""
    return [
        (each.task, each.name, [signal.rule for signal in signals])
        for each, signals in found
        if (bool(signals) if each.label == "honest" else not any(s.rule.startswith(f"{each.label}.") for s in signals))
    ]


def test_files_show_every_spelling_in_its_family_and_no_honest_neighbour() -> None:
    """T11 and T16 need events."""
    shown = (each for each in spellings() if each.label not in ("T11", "T16"))
    assert wrong((each, from_files(each)) for each in shown) == []


def test_events_alone_show_every_spelling_however_the_agent_writes_files() -> None:
    every = list(spellings())
    assert wrong((each, from_events(each, at % KINDS)) for at, each in enumerate(every)) == []


@pytest.mark.long
def test_events_alone_show_every_spelling_of_every_agent() -> None:
    every = list(spellings())
    for kind in range(KINDS):
        assert wrong((each, from_events(each, kind)) for each in every) == [], kind
