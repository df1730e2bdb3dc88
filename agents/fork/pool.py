"""A bounded pool of sandboxes: fair, exact in its count, and clean between uses.

A slot is reserved before its sandbox is created, so there are never more than `size`, however many callers ask at once.
Requests are served in the order in which they came. A returned sandbox is reset before it is reused; one that cannot be
reset is deleted, and its slot makes a new one. Cancelling at any point neither loses a slot nor leaks a sandbox.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from agents.fork.sandbox import Sandbox, SandboxError

AnySandbox = TypeVar("AnySandbox", bound=Sandbox)


class KernelPool(Generic[AnySandbox]):
    """At most `size` sandboxes, each lent to one caller at a time."""

    def __init__(self, create: Callable[[], Awaitable[AnySandbox]], size: int) -> None:
        if size < 1:
            raise ValueError("a pool has at least one slot")
        self._create = create
        self._free_slots = size
        self._idle: deque[AnySandbox] = deque()
        self._waiting: deque[asyncio.Future[AnySandbox | None]] = deque()
        self._chores: set[asyncio.Task[None]] = set()
        self._lent: set[AnySandbox] = set()
        self._closed = False

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[AnySandbox]:
        """A clean sandbox for as long as the block runs, given back on every way out."""
        sandbox = await self.acquire()
        try:
            yield sandbox
        finally:
            self.release(sandbox)

    async def acquire(self) -> AnySandbox:
        """A clean sandbox, in the order of asking. Raises SandboxError if none can be made, or the pool is closed."""
        if self._closed:
            raise SandboxError("the pool is closed")
        turn: asyncio.Future[AnySandbox | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._serve()
        try:
            sandbox = await turn
        except asyncio.CancelledError:
            if (
                turn.done() and not turn.cancelled() and turn.exception() is None
            ):  # served at the same moment: pass it on
                self._hand_back(turn.result())
            raise
        if sandbox is None:
            sandbox = await self._make()
        self._lent.add(sandbox)
        return sandbox

    def release(self, sandbox: AnySandbox) -> None:
        """Take a sandbox back; it is reset, or replaced, before the next one gets it."""
        if sandbox in self._lent:
            self._lent.discard(sandbox)
            self._chore(self._clean(sandbox))

    async def close(self) -> None:
        """Turn away who waits, and dispose of every sandbox, lent ones included."""
        self._closed = True
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(SandboxError("the pool was closed"))
        for sandbox in [*self._lent, *self._idle]:
            self._chore(self._throw_away(sandbox))
        self._lent.clear()
        self._idle.clear()
        while self._chores:
            await asyncio.wait(self._chores)

    # -- slots ---------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Serve waiting callers in order: each gets a sandbox, or (None) the right to create one."""
        while self._waiting and (self._idle or self._free_slots):
            turn = self._waiting.popleft()
            if turn.done():
                continue
            if self._idle:
                turn.set_result(self._idle.popleft())
            else:
                self._free_slots -= 1
                turn.set_result(None)

    def _hand_back(self, sandbox: AnySandbox | None) -> None:
        """Take back a sandbox whose caller no longer wants it."""
        if self._closed and sandbox is not None:
            self._chore(self._throw_away(sandbox))
        elif sandbox is not None:
            self._idle.appendleft(sandbox)
        else:
            self._free_slots += 1
        self._serve()

    async def _make(self) -> AnySandbox:
        """A new sandbox for a slot that is counted. A sandbox that is ready after its caller has left is kept."""
        making = asyncio.ensure_future(self._create())
        try:
            sandbox = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._chore(self._receive(making))
            raise
        except BaseException:
            self._hand_back(None)
            raise
        if self._closed:
            self._chore(self._throw_away(sandbox))
            raise SandboxError("the pool was closed")
        return sandbox

    async def _receive(self, making: "asyncio.Future[AnySandbox]") -> None:
        try:
            sandbox = await making
        except Exception:  # noqa: BLE001 - the caller has left; the slot is what matters
            self._hand_back(None)
        else:
            self._hand_back(sandbox)

    async def _clean(self, sandbox: AnySandbox) -> None:
        try:
            await sandbox.reset()
        except Exception:  # noqa: BLE001 - broken in whatever way: it is replaced
            await self._throw_away(sandbox)
        else:
            self._hand_back(sandbox)

    async def _throw_away(self, sandbox: AnySandbox) -> None:
        try:
            await sandbox.dispose()
        finally:
            self._hand_back(None)

    def _chore(self, work: Awaitable[None]) -> None:
        """Work that the cancellation of a caller must not stop."""
        task = asyncio.ensure_future(work)
        self._chores.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._chores.discard(task)
        if not task.cancelled():
            task.exception()  # a sandbox that cannot even be thrown away is swept by the next runner
