"""The members of the first object of a file, as far as its first bytes show them."""

from collections.abc import Iterator

from agents.importers.traces.json_elements import Structure
from agents.importers.traces.reading import first_value

_COLON = ord(":")


def first_members(head: bytes) -> dict[str, bytes]:
    """By name, the bytes that follow each name of the first object: its value, and whatever comes after it."""
    return dict(_members(first_value(head)))


def _members(text: bytes) -> Iterator[tuple[str, bytes]]:
    if not text.startswith(b"{"):
        return
    for place, code, depth in Structure().marks(text):
        if depth == 1 and code in b"}]":
            return
        if depth == 1 and code == _COLON:
            name = text[:place].rstrip().removesuffix(b'"').rpartition(b'"')[2]
            yield name.decode(errors="replace"), text[place + 1 :].lstrip()
