"""One request, from its items to the broker's answers about its records.

Items are read, packed and sent one by one, so that a long body neither fills memory with its facts nor blocks the event
loop. A bad item is noted at its position; the rest is written.
"""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from agents.facts.fact import Fact
from agents.importers.line_error import LineError
from agents.importers.slices import Piece
from schemas.errors import SchemaError
from schemas.events import AgentEvents
from schemas.lifecycle import Lifecycle
from streams.log.headers import identity
from streams.log.input_lines import fact_doubt
from streams.services.gateway.bodies import MAX_ITEMS, Item
from streams.services.gateway.fact_reader import Ending, FactReader
from streams.services.gateway.problems import (
    BAD_CONTENT,
    TOO_LARGE,
    Caution,
    Position,
    Problem,
    problem_of,
    shared_status,
)
from streams.services.gateway.request_packer import Packer
from streams.services.gateway.sender import BrokerAwayError, Sender

TURN = 100
"""Items between two turns of other requests: a few milliseconds."""

LARGE = 256 * 1024
"""Bytes of a body from which its JSON is parsed in a thread: it can take a second, and others wait."""

ENDING = Position(-1)
"""The position of an `ended` in the query: no item."""


class Sent(NamedTuple):
    """A record on its way."""

    view: dict[str, Any]
    items: tuple[Position, ...]
    acknowledged: asyncio.Future[Any]


class Outcome(NamedTuple):
    """The outcome of a request."""

    status: int
    accepted: int
    """Items that are in the log now."""
    records: list[dict[str, Any]]
    problems: list[Problem]
    cautions: list[Caution]

    def plain(self) -> dict[str, Any]:
        """The JSON view."""
        errors = [problem.plain() for problem in self.problems]
        warnings = [caution.plain() for caution in self.cautions]
        return {"accepted": self.accepted, "records": self.records, "errors": errors, "warnings": warnings}


class Intake:
    """Takes the items of one request."""

    def __init__(
        self, sender: Sender, reader: FactReader, *, traceparent: str | None, ending: Ending | None = None
    ) -> None:
        self._sender = sender
        self._reader = reader
        self._traceparent = traceparent
        self._ending = ending
        self._packer = Packer(sender.encode)
        self._sent: list[Sent] = []
        self._problems: list[Problem] = []
        self._cautions: list[Caution] = []

    async def take(self, items: Iterator[Item], size: int) -> Outcome:
        """Write the good items of a body of this size; return when the broker has acknowledged them."""
        count = 0
        try:
            while turn := await _next(items, size):
                count += len(turn)
                for item in turn:
                    await self._take(item)
                await asyncio.sleep(0)
            if self._ending is not None:
                await self._end(self._ending)
            for piece in self._packer.flush():
                await self._write(piece)
            await self._sender.acknowledge([sent.acknowledged for sent in self._sent])
        except BrokerAwayError as error:
            self._problems.append(Problem(None, "", f"{error}; nothing is lost by sending it all again", 503))
            return self._outcome(503)
        if not count and self._ending is None:
            self._problems.append(Problem(None, "body", "there is nothing in the body", 400))
        return self._outcome()

    async def _take(self, item: Item) -> None:
        try:
            facts = self._reader.read(item)
            pieces = self._packer.add(facts, item.at)
        except LineError as error:
            self._problems.append(problem_of(error, item.at))
            return
        self._cautions += [Caution(item.at, *found) for fact in facts if (found := fact_doubt(fact)) is not None]
        if self._ending is not None:
            self._ending.saw(facts)
        for piece in pieces:
            await self._write(piece)

    async def _end(self, ending: Ending) -> None:
        """An end must not be written before events of its own request that were refused: they could be too late when
        they are sent again.
        """
        if self._problems:
            reason = "not written, because some events were refused; send them, then the end"
            self._problems.append(Problem(None, "ended", reason, BAD_CONTENT))
            return
        try:
            pieces = self._packer.add(self._reader.read(Item(ENDING, ending.line())), ENDING)
        except LineError as error:
            self._problems.append(problem_of(error, None))
            return
        for piece in pieces:
            await self._write(piece)

    async def _write(self, piece: Piece[Position]) -> None:
        fact = piece.fact
        if isinstance(fact, Lifecycle) and fact.opened is None:
            # It settles the rollout with everything appended before it, so everything before it must be in the log
            # first.
            await self._sender.acknowledge([sent.acknowledged for sent in self._sent])
        try:
            record = self._sender.outgoing(fact, self._traceparent)
        except (ValueError, TypeError, OverflowError) as error:
            self._problems += [
                _problem(at, f"a value does not fit its field: {error}", BAD_CONTENT) for at in piece.items
            ]
            return
        except SchemaError as error:
            raise BrokerAwayError(str(error)) from None
        acknowledged = await self._sender.send(record)
        self._sent.append(Sent(_view(fact), piece.items, acknowledged))

    def _outcome(self, status: int | None = None) -> Outcome:
        records: list[dict[str, Any]] = []
        taken: set[Position] = set()
        failed: set[Position] = set()
        for sent in self._sent:
            if not sent.acknowledged.done() or sent.acknowledged.exception() is not None:
                failed.update(sent.items)
                if sent.acknowledged.done() and status is None:
                    self._problems += [_problem(at, "the broker says it is too large", TOO_LARGE) for at in sent.items]
                continue
            place = sent.acknowledged.result()
            records.append({"topic": place.topic, "partition": place.partition, "offset": place.offset, **sent.view})
            taken.update(sent.items)
        written = taken - failed
        if status is None:
            status = 202 if not self._problems else 207 if records else shared_status(self._problems)
        self._problems.sort(key=lambda problem: problem.at.number if problem.at else MAX_ITEMS)
        cautions = [caution for caution in self._cautions if caution.at in written]
        return Outcome(status, len(written - {ENDING}), records, self._problems, cautions)


async def _next(items: Iterator[Item], size: int) -> list[Item]:
    """The next items; empty at the end."""
    some = islice(items, TURN)
    return await asyncio.to_thread(list, some) if size > LARGE else list(some)


def _problem(at: Position, reason: str, status: int) -> Problem:
    return Problem(None if at is ENDING else at, "", reason, status)


def _view(fact: Fact) -> dict[str, Any]:
    """The fields of an answer about a record, in addition to its position."""
    view: dict[str, Any] = {"record": type(fact).__name__, "id": identity(fact)}
    if isinstance(fact, AgentEvents) and fact.events:
        view |= {"first_seq": fact.first_seq, "last_seq": fact.first_seq + len(fact.events) - 1}
    return view
