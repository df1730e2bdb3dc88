"""Captures over HTTP: the items of a tracer's request, checked one by one, written together, answered when the broker has them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from agents.capture.capture_item import capture_of
from agents.capture.parts import in_parts
from agents.importers.line_error import LineError
from schemas.captures import Capture
from streams.services.gateway.bodies import Item
from streams.services.gateway.intake import Outcome
from streams.services.gateway.problems import Problem, problem_of, shared_status
from streams.services.gateway.sender import BrokerAwayError, Sender

Write = Callable[[list[Capture]], Awaitable[None]]
"""Writes captures of one branch, and returns when the broker has them. Raises BrokerAwayError."""


TOGETHER = 64
"""Items that are read before other requests get their turn."""


async def take_captures(items: Iterable[Item], place: dict[str, Any], write: Write, *, redacting: bool) -> Outcome:
    """Write the good items of a request; `place` has rollout_id, branch_index and attempt."""
    problems: list[Problem] = []
    captures: list[Capture] = []
    received_ms = int(time.time() * 1000)
    count = 0
    for item in items:
        count += 1
        if count % TOGETHER == 0:
            await asyncio.sleep(0)  # streams that pass through this process go on
        try:
            captures.append(capture_of(item.content(), place, received_ms, redacting=redacting))
        except LineError as error:
            problems.append(problem_of(error, item.at))
    if not count:
        problems.append(Problem(None, "body", "there is nothing in the body", 400))
    try:
        if captures:
            await write(captures)
    except BrokerAwayError as error:
        problems.append(Problem(None, "", f"{error}; nothing is lost by sending it all again", 503))
        return Outcome(503, 0, [], problems, [])
    status = 202 if not problems else 207 if captures else shared_status(problems)
    return Outcome(status, len(captures), [], problems, [])


async def write_directly(sender: Sender, captures: list[Capture]) -> None:
    """Write captures if there is no proxy in the process. Raises BrokerAwayError."""
    sent = [await sender.send(sender.outgoing(part, None)) for capture in captures for part in in_parts(capture)]
    await sender.acknowledge(sent)
