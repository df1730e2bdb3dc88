"""A branch's events on their way to the log: numbered, timed, and written in slices while the branch runs."""

import asyncio
from collections.abc import Callable
from typing import Any

from agents.conversations.token_deltas import size_of
from agents.conversations.tokens import pack_data
from agents.fork.log import Log
from agents.importers.slices import MAX_TEXT
from agents.summarize.output import byte_length
from schemas.conversation import GivenTokens
from schemas.event_kinds import channel_of
from schemas.events import AgentEvent, AgentEvents, BranchInfo, EndStatus, Workspace
from schemas.jsontext import compact

Clock = Callable[[], int]
"""Milliseconds since 1970."""


class Recorder:
    """Writes one attempt of one branch. Flushed events are on the log; a crash loses at most the others."""

    def __init__(
        self, log: Log, rollout_id: str, branch_index: int, attempt: int, info: BranchInfo, clock: Clock
    ) -> None:
        self.rollout_id = rollout_id
        self.branch_index = branch_index
        self.attempt = attempt
        self.written = 0
        """Events on the log."""
        self._log = log
        self._info: BranchInfo | None = info
        self.clock = clock
        self._waiting: list[AgentEvent] = []
        self._size = 0

    @property
    def trace_id(self) -> str:
        """The same for the same attempt, on every machine."""
        return f"{self.rollout_id}/b{self.branch_index}/a{self.attempt}"

    def event(self, kind: str, data: dict[str, Any]) -> AgentEvent:
        """Add an event; the next flush writes it."""
        tokens = None
        if kind == "model_call" and "tokens" in data:
            data, tokens = pack_data(data, GivenTokens.model_validate(data["tokens"]))
        event = AgentEvent(
            trace_id=self.trace_id,
            channel=channel_of(kind),
            event=kind,
            data=compact(data),
            timestamp_ms=self.clock(),
            tokens=tokens,
        )
        self.take(event)
        return event

    def take(self, event: AgentEvent) -> None:
        """Add an event unchanged."""
        self._waiting.append(event)
        self._size += _size(event)

    @property
    def is_full(self) -> bool:
        """Whether a slice of good size waits."""
        return self._size >= MAX_TEXT

    async def flush(self) -> None:
        """Write the waiting events, if there are any."""
        if self._waiting:
            await self._write({})

    async def end(self, status: EndStatus, error: str | None, workspace: Workspace | None) -> None:
        """Write the last slice."""
        last = self.written + len(self._waiting) - 1
        end: dict[str, Any] = {"ended": True, "status": status, "error": error, "workspace": workspace}
        await self._write(end | {"last_seq": last if last >= 0 else None})

    async def _write(self, end: dict[str, Any]) -> None:
        """Write all waiting events, in slices of good size; the last one has the end."""
        *before, last = self._slices()
        self._waiting, self._size = [], 0
        for events in before:
            await self._append(events, {})
        await self._append(last, end)

    def _slices(self) -> list[list[AgentEvent]]:
        """The events that wait. A turn with many calls makes more events at once than a slice may hold."""
        slices: list[list[AgentEvent]] = [[]]
        size = 0
        for event in self._waiting:
            length = _size(event)
            if slices[-1] and size + length > MAX_TEXT:
                slices.append([])
                size = 0
            slices[-1].append(event)
            size += length
        return slices

    async def _append(self, events: list[AgentEvent], end: dict[str, Any]) -> None:
        slice_ = AgentEvents(
            rollout_id=self.rollout_id,
            branch_index=self.branch_index,
            attempt=self.attempt,
            first_seq=self.written,
            events=tuple(events),
            branch=self._info,
            **end,
        )
        self._info = None
        self.written += len(slice_.events)
        # A write that has begun is finished: after a cancelled one it would be unknown whether its seqs are used.
        writing = asyncio.ensure_future(self._log.append(slice_))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise


def _size(event: AgentEvent) -> int:
    return byte_length(event.data) + size_of(event.tokens)
