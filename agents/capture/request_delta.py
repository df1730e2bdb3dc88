"""Requests as differences: a history that was captured before is named by its length and digest, and not stored again.

Every request of an agent contains its whole conversation. The writer knows the digests of all beginnings that it has
captured of a branch; the reader keeps their messages in a tree. A beginning is named by content alone, so that it does
not matter which request it came with. Long fields (tools, system prompts) that were captured before are named by their
digest, too.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Any, NamedTuple

from schemas.errors import BraidError
from schemas.jsontext import compact

MIN_FIELD = 512
"""Bytes of JSON from which on a field is named by its digest when it comes again."""

MAX_ITEMS = 100_000
"""Messages of a history: a body of brackets and zeros would else cost minutes and gigabytes."""


class TooManyItemsError(BraidError):
    """A request with more messages than the limit."""


class UnknownBeginningError(BraidError):
    """A request that continues something that was not captured before it."""


class Shrunk(NamedTuple):
    """A request as a difference."""

    delta: dict[str, Any]
    digests: tuple[bytes, ...]
    """Digests that the branch has once the difference is stored."""


def shrink(request: Mapping[str, Any], history: str, known: AbstractSet[bytes]) -> Shrunk:
    """Return a request as a difference to the known messages of its branch; `history` names the field that grows.
    Raises TooManyItemsError.
    """
    digests: list[bytes] = []
    fields: dict[str, Any] = {}
    same: dict[str, str] = {}
    items = request.get(history)
    for name, value in request.items():
        if name == history and isinstance(items, list):
            continue
        text = compact(value)
        digest = _digest(b"field", text)
        if len(text) < MIN_FIELD:
            fields[name] = value
        elif digest in known:
            same[name] = digest.hex()
        else:
            digests.append(digest)
            fields[name] = value
    delta: dict[str, Any] = {"fields": fields, "same": same} if same else {"fields": fields}
    if isinstance(items, list):
        if len(items) > MAX_ITEMS:
            raise TooManyItemsError(f"a request with more than {MAX_ITEMS} messages")
        chain = beginnings(items)
        keep = next((n for n in range(len(items), 0, -1) if chain[n - 1] in known), 0)
        delta |= {"history": history, "keep": keep, "add": items[keep:]}
        if keep:
            delta["digest"] = chain[keep - 1].hex()
        digests += chain[keep:]
    return Shrunk(delta, tuple(digests))


def beginnings(items: list[Any]) -> list[bytes]:
    """Return the digest of each beginning of a history, the shortest first."""
    found, before = [], b""
    for item in items:
        before = _digest(before, compact(item))
        found.append(before)
    return found


def _digest(before: bytes, text: str) -> bytes:
    return sha256(before + b"\0" + text.encode("utf-8", "surrogatepass")).digest()[:16]


class Place:
    """A message of a history, with its predecessor."""

    __slots__ = ("before", "digest", "item", "reading")

    def __init__(self, before: "Place | None", item: Any, digest: bytes) -> None:
        self.before = before
        self.item = item
        self.digest = digest
        self.reading: Any = None
        """The value that a reader made of it, so that it is read once."""


class Whole(NamedTuple):
    """A request with its history."""

    fields: dict[str, Any]
    """Everything but the history."""
    history: list[Place] | None
    """The messages; None if the request has no list of them (`fields` then has its value)."""


class Expander:
    """The requests of a branch, put together again in the order in which they were captured."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._fields: dict[str, Any] = {}

    def expand(self, delta: Mapping[str, Any]) -> Whole:
        """Return the whole request. Raises UnknownBeginningError, TooManyItemsError."""
        fields = dict(delta["fields"])
        for value in fields.values():
            text = compact(value)
            if len(text) >= MIN_FIELD:
                self._fields[_digest(b"field", text).hex()] = value
        for name, digest in delta.get("same", {}).items():
            if digest not in self._fields:
                raise UnknownBeginningError(f"{name}: a value that was not captured before")
            fields[name] = self._fields[digest]
        return Whole(fields, self._history(delta) if "history" in delta else None)

    def _history(self, delta: Mapping[str, Any]) -> list[Place]:
        if delta["keep"] + len(delta["add"]) > MAX_ITEMS:
            raise TooManyItemsError(f"a request with more than {MAX_ITEMS} messages")
        last: Place | None = None
        if delta["keep"]:
            last = self._places.get(delta["digest"])
            if last is None:
                raise UnknownBeginningError(f"the first {delta['keep']} messages were not captured before")
        for item in delta["add"]:
            digest = _digest(b"" if last is None else last.digest, compact(item))
            known = self._places.get(digest.hex())
            last = known or self._places.setdefault(digest.hex(), Place(last, item, digest))
        found: list[Place] = []
        while last is not None:
            found.append(last)
            last = last.before
        return found[::-1]
