"""A worker's slot: its place in a consumer group (static membership), held by one process at a time.

Two processes with one slot would take it from each other forever, because Kafka gives a slot to the member that joined
last. So the second one is refused before it joins, and the first continues undisturbed:

- On one machine a lock file decides at once. The kernel releases it when its holder ends, however it ends. The file
keeps the id
  that the group gave its holder: a member with that id is a dead process of this machine, and its slot is taken over at once.
- A member with another id comes from another machine (or another user, or a container that is gone). Only its heartbeats show
  whether it lives: the group forgets a dead one after a session timeout, so the second process waits that long before it is
  refused.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson
import structlog
from aiokafka.errors import KafkaError, for_code

from streams.cluster.broker import places
from streams.cluster.config import Settings
from streams.cluster.connections import ClusterError, start_admin
from streams.cluster.locks.file_lock import LockedError, locked

LOOK_S = 0.25
"""How often the group is checked while a member may be dead."""

MARGIN_S = 1.0
"""A broker notices the end of a session a moment later."""

MEMBER_SUFFIX = 37
"""Characters that the broker appends to a static member's name: a hyphen and a UUID."""

log = structlog.get_logger()


class SlotTakenError(ClusterError):
    """Another process holds this slot."""


class Member(NamedTuple):
    """The holder of a slot, as the group describes it."""

    member_id: str
    host: str


def name_of(group: str, slot: int) -> str:
    """The group.instance.id of a slot."""
    return f"{group}-{slot}"


class Slot:
    """A slot that this process holds."""

    def __init__(self, settings: Settings, group: str, number: int, file: BinaryIO) -> None:
        self._settings = settings
        self._group = group
        self._number = number
        self._file = file

    async def remember(self) -> None:
        """Keep the id that the group gave us, for the next process in this slot; called whenever the group was joined."""
        with suppress(ClusterError, OSError):  # without it the next process waits for a session timeout
            held = (await members_of(self._settings, self._group)).get(name_of(self._group, self._number))
            _write(self._file, held.member_id if held is not None else "")

    async def require(self) -> None:
        """Raises SlotTakenError when a process of another machine works in this slot."""
        name, own = name_of(self._group, self._number), _read(self._file).get("member")
        _write(self._file, own or "")
        began, patience = time.monotonic(), self._settings.worker.session_timeout_s + MARGIN_S
        first: Member | None = None
        while True:
            members = await members_of(self._settings, self._group)
            held = members.get(name)
            if held is None or held.member_id == own:
                return
            if first is None:
                first = held
                log.info("waiting: is the slot's holder alive?", slot=self._number, host=held.host, at_most_s=patience)
            if held.member_id != first.member_id or time.monotonic() - began > patience:
                raise taken(self._group, self._number, held.host, members)
            await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def claimed(settings: Settings, group: str, number: int) -> AsyncIterator[Slot]:
    """Hold a slot. Raises SlotTakenError, naming its holder, when another process works in it."""
    path = await _lock_file(settings, name_of(group, number))
    try:
        file = locked(path)
    except LockedError:
        with path.open("rb") as other:
            holder = _read(other)
        host = holder.get("host", socket.gethostname())
        process = f" (process {holder.get('pid', 'unknown')} holds it)"
        raise taken(group, number, host, await members_of(settings, group), process) from None
    with file:
        slot = Slot(settings, group, number, file)
        await slot.require()
        yield slot


def taken(group: str, number: int, host: str, members: dict[str, Member], process: str = "") -> SlotTakenError:
    """The refusal, with the first slot that is free."""
    free = next(each for each in range(len(members) + 2) if each != number and name_of(group, each) not in members)
    return SlotTakenError(f"slot {number} is taken by {host}; use --slot {free}{process}")


async def members_of(settings: Settings, group: str) -> dict[str, Member]:
    """The static members of a group by their names. Raises ClusterError."""
    admin = await start_admin(settings)
    ends = time.monotonic() + settings.worker.session_timeout_s
    try:
        while (error := (found := await _described(admin, group)).error) is not None:
            # A new cluster has no coordinator yet, and one that fails over loads its groups: both are temporary. An
            # empty answer must not count as a free slot.
            if not error.retriable or time.monotonic() > ends:
                raise ClusterError(f"Kafka at {settings.kafka} does not describe the group {group}: {error!r}")
            await asyncio.sleep(LOOK_S)
    finally:
        await admin.close()
    return found.members


class Described(NamedTuple):
    """The static members of a group by their names, or why they are not known."""

    members: dict[str, Member]
    error: KafkaError | None = None


async def _described(admin: Any, group: str) -> Described:
    try:
        (answer,) = await admin.describe_consumer_groups([group])
    except KafkaError as error:
        return Described({}, error)
    found = answer.to_object()["groups"][0]
    if found["error_code"]:
        return Described({}, for_code(found["error_code"])(group))
    # The broker makes a static member's id of its name and a UUID.
    return Described(
        {
            each["member_id"][:-MEMBER_SUFFIX]: Member(each["member_id"], each["client_host"].removeprefix("/"))
            for each in found["members"]
        }
    )


async def _lock_file(settings: Settings, name: str) -> Path:
    """One for each slot of each cluster, whatever address the cluster is reached by."""
    admin = await start_admin(settings)
    try:
        cluster = (await admin.describe_cluster()).get("cluster_id") or "unknown"
    except KafkaError as error:
        raise ClusterError(f"Kafka at {settings.kafka} does not describe itself: {error}") from error
    finally:
        await admin.close()
    return (settings.state_dir or places.state_dir()) / "slots" / f"{name}@{cluster}"


def _read(file: BinaryIO) -> dict[str, str]:
    """The last content; empty if it was never written, or not completely."""
    file.seek(0)
    try:
        found = orjson.loads(file.read())
    except orjson.JSONDecodeError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _write(file: BinaryIO, member: str) -> None:
    file.truncate(0)
    file.write(orjson.dumps({"host": socket.gethostname(), "pid": os.getpid(), "member": member}))
    file.flush()
