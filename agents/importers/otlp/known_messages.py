"""Cache of repeated messages: every call of a branch contains its whole history, and each message is parsed once.

The result is the same as without the cache. A text or message that cannot be read is always read again.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agents.importers.otlp.attribute_tree import at, nested, parsed_list
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.spoken_chat import Unread, read_messages

KEPT = 4
"""Number of cached histories: agents may take turns."""


class _History(NamedTuple):
    text: str
    """A JSON array, from bracket to bracket."""
    messages: list[Spoken]


class KnownMessages:
    """The cached messages of one branch."""

    def __init__(self) -> None:
        self._histories: list[_History] = []
        self._flat: dict[tuple[tuple[str, Any], ...], list[Spoken]] = {}

    def of_text(self, value: Any, where: str, unread: Unread) -> list[Spoken] | None:
        """Return the messages of a JSON array, or None for anything else.

        After a cached array only the rest is parsed.
        """
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
        """Return messages from attributes below a prefix with numbered keys.

        `chat` converts one of them to a chat message.
        """
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
    """Return the messages of a text that begins with a known one.

    Returns None if it does not, or if its rest cannot be read.
    """
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
