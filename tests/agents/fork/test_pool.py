"""The pool of sandboxes: never more than its size, fair, clean, and without leaks on any way out."""

import asyncio
import random
import signal
from pathlib import Path

import pytest

from agents.fork.folder_adapter import remove
from agents.fork.local_adapter import LocalSandboxes
from agents.fork.pool import KernelPool
from agents.fork.sandbox import Limits, SandboxError
from agents.fork.sandbox_adapter import LocalSandbox


class Counted:
    """Real sandboxes, counted from before they are made until after they are gone."""

    def __init__(self, local: LocalSandboxes, slow_s: float = 0.0) -> None:
        self.local = local
        self.slow_s = slow_s
        self.alive = self.most = self.made = 0
        self.fail_next = False

    async def create(self) -> LocalSandbox:
        self.alive += 1
        self.made += 1
        self.most = max(self.most, self.alive)
        await asyncio.sleep(self.slow_s)
        if self.fail_next:
            self.alive -= 1
            raise SandboxError("as told")
        sandbox = await self.local.create()
        dispose = sandbox.dispose

        async def counted() -> None:
            await dispose()
            self.alive -= 1

        sandbox.dispose = counted  # type: ignore[method-assign]
        return sandbox


def folders(local: LocalSandboxes) -> int:
    return len(list(local._folder.iterdir()))


async def test_100_at_once_on_8_slots(local: LocalSandboxes) -> None:
    """Never more than 8 alive, served in the order of asking, clean each time, none left at the end."""
    counted = Counted(local, slow_s=0.01)
    pool = KernelPool(counted.create, 8)
    served: list[int] = []
    lent = most_lent = 0
    full = asyncio.Event()

    async def use(number: int) -> None:
        nonlocal lent, most_lent
        async with pool.lease() as sandbox:
            served.append(number)
            lent += 1
            most_lent = max(most_lent, lent)
            if lent == 8:
                full.set()
            await full.wait()
            assert await sandbox.files() == {}
            await sandbox.write(f"{number}.txt", b"mine")
            if number % 10 == 0:
                assert (await sandbox.run(["true"], Limits())).exit_code == 0
            lent -= 1

    await asyncio.gather(*(use(number) for number in range(100)))
    await pool.close()
    assert sorted(served) == list(range(100))
    assert [number for number in served if number >= 8] == list(range(8, 100)), "those that waited are served in order"
    assert (counted.most, most_lent) == (8, 8)
    assert counted.made == 8, "sandboxes are used again"
    assert (counted.alive, folders(local)) == (0, 0)


@pytest.mark.parametrize("count", [80, pytest.param(400, marks=pytest.mark.long)])
async def test_cancellations_crashes_and_kills_leak_nothing(local: LocalSandboxes, count: int) -> None:
    """Users that are cancelled while waiting, making or holding, that raise, or whose sandbox dies, cost no slot."""
    counted = Counted(local, slow_s=0.01)
    pool = KernelPool(counted.create, 8)
    chance = random.Random(8)

    async def use(number: int) -> str:
        async with pool.lease() as sandbox:
            assert await sandbox.files() == {}
            match number % 5:
                case 1:
                    raise RuntimeError("the user crashed")
                case 2:
                    await local_damage(sandbox)
                case 3:
                    running = asyncio.ensure_future(sandbox.run(["sleep", "5"], Limits()))
                    await asyncio.sleep(0.1)
                    kill_holder(sandbox)
                    with pytest.raises(SandboxError):
                        await running
                case _:
                    await asyncio.sleep(chance.random() * 0.05)
        return "done"

    users = [asyncio.create_task(use(number)) for number in range(count)]
    for user in chance.sample(users, count * 2 // 5):
        await asyncio.sleep(chance.random() * 0.02)
        user.cancel()
    outcomes = await asyncio.gather(*users, return_exceptions=True)
    assert sum(outcome == "done" for outcome in outcomes) > count * 3 // 10
    assert counted.most <= 8

    for _ in range(2):  # every slot is still there, and works
        async with asyncio.timeout(20):
            held = [await pool.acquire() for _ in range(8)]
        for sandbox in held:
            assert (await sandbox.run(["true"], Limits())).exit_code == 0
            pool.release(sandbox)
    await pool.close()
    assert (counted.alive, folders(local)) == (0, 0)


async def local_damage(sandbox: LocalSandbox) -> None:
    """The sandbox's folder is removed."""
    await asyncio.to_thread(remove, sandbox._folder)


def kill_holder(sandbox: LocalSandbox) -> None:
    """SIGKILL for the process that holds the sandbox and its commands."""
    assert sandbox._holder is not None
    sandbox._holder.process.send_signal(signal.SIGKILL)


async def test_cancelled_while_it_is_made(local: LocalSandboxes) -> None:
    """A sandbox that comes after its caller has left goes to the next caller."""
    counted = Counted(local, slow_s=0.2)
    pool = KernelPool(counted.create, 1)
    first = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0.05)
    second = asyncio.create_task(pool.acquire())
    first.cancel()
    sandbox = await asyncio.wait_for(second, 5)
    assert (counted.made, counted.most) == (1, 1)
    pool.release(sandbox)
    await pool.close()
    assert (counted.alive, folders(local)) == (0, 0)


async def test_a_sandbox_that_cannot_be_made_frees_its_slot(local: LocalSandboxes) -> None:
    """The caller gets the error; the next one can try."""
    counted = Counted(local)
    pool = KernelPool(counted.create, 1)
    counted.fail_next = True
    with pytest.raises(SandboxError, match="as told"):
        await pool.acquire()
    counted.fail_next = False
    async with asyncio.timeout(5), pool.lease() as sandbox:
        await sandbox.write("x", b"")
    await pool.close()


async def test_closing_turns_away_and_disposes(local: LocalSandboxes, tmp_path: Path) -> None:
    """Those who wait are told, what is lent is thrown away too, and giving it back later does no harm."""
    counted = Counted(local)
    pool = KernelPool(counted.create, 1)
    held = await pool.acquire()
    waiting = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(SandboxError):
        await waiting
    with pytest.raises(SandboxError):
        await pool.acquire()
    pool.release(held)
    assert (counted.alive, folders(local)) == (0, 0)
