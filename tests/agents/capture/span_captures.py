"""Captures of spans for tests, and what the fold makes of them: traces first, then the branches that they name."""

import json
from collections.abc import Iterable
from itertools import count
from typing import Any

from agents.capture.capture_fold import CaptureFold, RefusedCaptureError
from agents.importers.otlp.request_split import TRACES, Signal, split_json, split_proto
from schemas.captures import Capture
from schemas.events import AgentEvents

Place = tuple[str, int, int]

NUMBERS = count()


def captures_of(bodies: Iterable[bytes | dict[str, Any]], signal: Signal = TRACES, **more: Any) -> list[Capture]:
    """Captures as the receiver writes them; a dict is a request in JSON."""
    made = []
    for body in bodies:
        split = split_json(body) if isinstance(body, dict) else split_proto(body, signal)
        for trace, part in split.bodies.items():
            made.append(
                Capture(
                    rollout_id=f"otel-{trace.hex()}", branch_index=0, capture_id=f"c{next(NUMBERS)}", source="otlp",
                    kind="span" if signal is TRACES else "log", trace_id=trace.hex(), received_ms=1, body=part, **more,
                )
            )  # fmt: skip
    return made


def folded(captures: Iterable[Capture], reason: str = "client") -> tuple[dict[Place, list[AgentEvents]], list[str]]:
    """The slices of each branch once everything has ended, and the reasons of refusals."""
    folds: dict[Place, CaptureFold] = {}
    slices: dict[Place, list[AgentEvents]] = {}
    refused: list[str] = []
    offsets = count()
    waiting = list(captures)
    while waiting:
        moved: list[Capture] = []
        ends = list(dict.fromkeys((each.rollout_id, each.branch_index, each.attempt) for each in waiting))
        over = [
            Capture(
                rollout_id=name, branch_index=index, attempt=attempt, capture_id="end", kind="end", received_ms=1,
                body=json.dumps({"reason": reason}).encode(),
            )
            for name, index, attempt in ends
        ]  # fmt: skip
        for each in (*waiting, *over):
            place = (each.rollout_id, each.branch_index, each.attempt)
            fold = folds.setdefault(place, CaptureFold(*place))
            try:
                told = fold.take(each, next(offsets))
            except RefusedCaptureError as error:
                refused.append(error.reason)
                continue
            moved += [one for one in told if isinstance(one, Capture)]
            slices.setdefault(place, []).extend(one for one in told if isinstance(one, AgentEvents))
        waiting = moved
    return {place: found for place, found in slices.items() if found}, refused


def events_in(slices: Iterable[AgentEvents]) -> list[dict[str, Any]]:
    """The events of a branch as lines have them."""
    return [
        {
            "channel": event.channel, "event": event.event, "data": json.loads(event.data),
            **({} if event.timestamp_ms is None else {"timestamp_ms": event.timestamp_ms}),
        }
        for piece in slices
        for event in piece.events
    ]  # fmt: skip
