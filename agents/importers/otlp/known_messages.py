"""Messages that spans of a branch tell again: every call holds its whole history, and each message of it is read once.

The result is that of reading everything anew; a text or a message that cannot be read is always read anew.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agents.importers.otlp.attribute_tree import at, nested, parsed_list
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.spoken_chat import Unread, read_messages

KEPT = 4
"""Histories that are remembered: those of agents that take turns."""


class _History(NamedTuple):
    text: str
    """A JSON array, from bracket to bracket."""
    messages: list[Spoken]


class KnownMessages:
    """Messages of one branch that were read before."""

    def __init__(self) -> None:
        self._histories: list[_History] = []
        self._flat: dict[tuple[tuple[str, Any], ...], list[Spoken]] = {}

    def of_text(self, value: Any, where: str, unread: Unread) -> list[Spoken] | None:
        """Messages of a JSON array; None where it is none. One that begins with an array read before is read from its end on."""
        if not isinstance(value, str) or value[-1:] != "]":
            listed = parsed_list(value)
            return None if listed is None else read_messages(listed, where, unread)
        for place, known in enumerate(self._histories):
            found = _continued(known, value)
            if found is not None:
                self._histories[place] = _History(value, found)
                return list(found)
        listed, before = parsed_list(value), len(unread.found)
        if listed is None:
            return None
        messages = read_messages(listed, where, unread)
        if messages and len(unread.found) == before:
            self._histories.insert(0, _History(value, messages))
            del self._histories[KEPT:]
        return list(messages)

    def of_attributes(
        self, attributes: Mapping[str, Any], prefix: str, chat: Callable[[Any], Any], where: str, unread: Unread
    ) -> list[Spoken]:
        """Messages of attributes below a prefix, numbered in their keys; `chat` makes a chat message of one of them."""
        groups: dict[str, list[tuple[str, Any]]] = {}
        length = len(prefix)
        for pair in attributes.items():
            if pair[0].startswith(prefix):
                groups.setdefault(pair[0][length:].partition(".")[0], []).append(pair)
        names = sorted((int(name), name) for name in groups if name.isdecimal() and len(name) < 10)
        found: list[Spoken] = []
        for number, (_, name) in enumerate(names):
            found += self._one(groups[name], prefix, name, chat, f"{where}[{number}]", unread)
        return found

    def _one(
        self,
        pairs: list[tuple[str, Any]],
        prefix: str,
        name: str,
        chat: Callable[[Any], Any],
        where: str,
        unread: Unread,
    ) -> list[Spoken]:
        key = tuple(pairs)
        try:
            known = self._flat.get(key)
        except TypeError:  # a value is a list
            known, key = None, ()
        if known is not None:
            return known
        tree = at(nested(dict(pairs), prefix), *prefix.rstrip(".").split("."), name)
        reading = Unread()
        made = read_messages([chat(at(tree, "message"))], where, reading)
        unread.found += [(field.replace("[0]", "", 1), reason, raw) for field, reason, raw in reading.found]
        if key and not reading.found:
            self._flat[key] = made
        return made


def _continued(known: _History, text: str) -> list[Spoken] | None:
    """The messages of a text that begins with a known one; None where it does not, or its rest cannot be read."""
    length = len(known.text)
    if text == known.text:
        return known.messages
    if len(text) < length or text[length - 1] != "," or not text.startswith(known.text[:-1]):
        return None
    rest, unread = parsed_list("[" + text[length:]), Unread()
    if not rest:
        return None
    added = read_messages(rest, "", unread)
    return None if unread.found else [*known.messages, *added]
