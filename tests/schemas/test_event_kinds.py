"""The table of event kinds: every example is valid, and the table says of it what the readers do."""

import json
import re

import pytest

from agents.importers.lines import LineReader
from agents.importers.slices import Slicer
from agents.rollouts.rollout import Rollout
from schemas.event_kinds import BY_NAME, KINDS, EventKind, channel_of
from schemas.events import AgentEvents


def name_of(kind: EventKind) -> str:
    return kind.name


def line(kind: EventKind) -> dict[str, object]:
    """The example on a line, without its channel."""
    event = {"event": kind.name.replace("*", "tool_call"), "data": kind.example}
    return {"type": "event", "rollout_id": "r", "branch_index": 0, "event": event}


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_every_example_is_read_and_folded_without_a_complaint(kind: EventKind) -> None:
    """A producer that copies an example gets its event onto the log, on the channel of the table."""
    rollout, slicer = Rollout("r"), Slicer()
    (fact,) = LineReader().read(json.dumps(line(kind)))
    assert isinstance(fact, AgentEvents)
    assert (fact.events[0].channel, json.loads(fact.events[0].data)) == (kind.channel, kind.example)
    pieces = [*slicer.add(fact), *slicer.flush()]
    assert [complaint for piece in pieces for complaint in rollout.add(piece, 0, ("t", 0, 0))] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "*" not in kind.name], ids=name_of)
def test_every_example_has_the_fields_of_its_table(kind: EventKind) -> None:
    """Required fields are there, and no field that the table does not name."""
    named = {field.name for field in kind.fields}
    assert set(kind.example) <= named
    assert {field.name for field in kind.fields if field.required and not re.search(r"[.\[]", field.name)} <= set(
        kind.example
    )
    assert all(field.type and field.about.endswith((".", "...")) for field in kind.fields)


def test_the_channel_of_an_unknown_kind_is_status_and_of_a_subagent_its_own() -> None:
    """A kind that is not in the table is kept, on a channel that no row is made of."""
    assert (channel_of("quantum_leap"), channel_of("subagent_final_answer")) == ("status", "subagent")
    assert len(BY_NAME) == len(KINDS)
