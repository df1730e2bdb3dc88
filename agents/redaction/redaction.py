"""Redaction: removes secrets and personal data from a text, and leaves a placeholder that names the kind.

`redact` and `redact_json` decide what is removed; no other code does. Guaranteed: the same input gives the same output
everywhere; redacting twice changes and counts nothing more; a text or value without findings is returned as the same
object; the time is linear in the text. The rules are in `private_keys`, `secret_rules`, `secret_encoded`,
`secret_commands`, `secret_cookies`, `secret_assignments` and `personal_rules`.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from agents.redaction.personal_rules import ADDRESSES, HOMES
from agents.redaction.private_keys import PRIVATE_KEYS
from agents.redaction.secret_assignments import ASSIGNMENTS, SecretName, looks_secret, secret_name
from agents.redaction.secret_commands import COMMANDS, is_command
from agents.redaction.secret_cookies import COOKIE_FIELDS, COOKIES, is_session
from agents.redaction.secret_encoded import ENCODED
from agents.redaction.secret_rules import CLOUD_KEYS, HEADERS_AND_URLS, MORE_VENDOR_KEYS, NAMED_KEYS, VENDOR_KEYS
from agents.redaction.secret_shapes import Rule, Test

Counts = tuple[tuple[str, int], ...]

RULES_VERSION = "4"
"""Raised with every change to what is removed (a test holds the rules to it): records that were redacted by other rules are
redacted again before they leave."""

SHORTEST = 6
"""Characters of the shortest thing that any rule removes (an address such as a@b.cd)."""
SECRET_FIELD = "secret_field"  # noqa: S105 - a kind
NAME = "key:"
"""The first part of the names of kinds that were found in the name of a field."""
_COOKIE = "Cookie: "
"""The prefix with which the text of a cookie field is examined."""
_BETWEEN = '", "'
"""The separator of the words of a list when it is read as a command."""
_AUTHORIZATION = frozenset({"authorization", "proxy-authorization", "proxy_authorization", "x-authorization"})


class Redacted(NamedTuple):
    """A text without its secrets."""

    text: str
    """The same object as the input if nothing was found."""
    counts: Counts
    """How many of each kind were removed, sorted by kind."""


class RedactedJson(NamedTuple):
    """A JSON value without its secrets."""

    value: Any
    """The same object as the input if nothing was removed."""
    counts: Counts
    """How many of each kind, sorted by kind. `key:<kind>` was found in the name of a field, and is still there."""


def redact(text: str) -> Redacted:
    """Remove everything that the rules find."""
    if _is_plain(text):
        return Redacted(text, ())
    counts: dict[str, int] = {}
    cleaned = text
    # A removal can reveal a secret that was too close to it, so rules run until they find nothing. This
    # ends: a removal always takes characters that are not part of a placeholder.
    while (result := _once(cleaned, counts)) is not cleaned:
        cleaned = result
    return Redacted(cleaned, _sorted(counts))


def _is_plain(text: str) -> bool:
    """Whether one cheap test shows that no rule can find anything."""
    return len(text) < SHORTEST or (len(text) <= _SHORT and text.isascii() and not _ANY.matches(text))


def contains_secret(text: str) -> bool:
    """Whether `redact` would remove anything: the last check before data is exported."""
    return redact(text).text is not text


def redact_json(value: Any) -> RedactedJson:
    """Redact the strings of a JSON value, including secrets that only the name of their field reveals.

    Only the containers on the path to a change are copied, and there is no recursion, however deep the value is nested.
    """
    if _is_plain_json(value):
        return RedactedJson(value, ())
    counts: dict[str, int] = {}
    tree = _Tree(value)
    for at, key, name, text in tree.strings():
        cleaned = _field(name, text, counts, "" if at is None else at.name)
        if cleaned is not text:
            tree.write(at, key, cleaned)
    for node in tree.commands:
        words = node.words()
        for index, (word, cleaned) in enumerate(zip(words, _command(words, counts), strict=True)):
            if cleaned != word:
                tree.write(node, index, cleaned)
    for name in tree.names:
        for kind, count in redact(name).counts:
            counts[NAME + kind] = counts.get(NAME + kind, 0) + count
    return RedactedJson(tree.value, _sorted(counts))


def _is_plain_json(value: Any) -> bool:
    """Whether cheap tests show that there is nothing to find, as in most arguments."""
    level = [value]
    for item in level:  # grows during the iteration
        kind = type(item)
        if kind is str:
            if not _is_plain(item):
                return False
        elif kind is dict:
            if not all(map(_is_plain_name, item)):
                return False
            level.extend(item.values())
        elif kind is list:
            if is_command(item):
                return False
            level.extend(item)
    return True


@lru_cache(maxsize=4096)
def _is_plain_name(name: Any) -> bool:
    # {"name": ..., "value": ...} gives a value the name of another field, so it is checked in detail
    return type(name) is str and name != "value" and _is_plain(name) and _secret_by_name(name) is None


def _secret_by_name(name: str) -> SecretName | None:
    return SecretName.TOKEN if name.lower() in _AUTHORIZATION else secret_name(name)


def has_unremoved(kinds: Iterable[str]) -> bool:
    """Whether a secret was found in the name of a field, where it cannot be removed."""
    return any(kind.startswith(NAME) for kind in kinds)


def _field(name: str, text: str, counts: dict[str, int], owner: str) -> str:
    """The text of a field of this name, redacted; `owner` is the name of the field that the container is."""
    header = _COOKIE if name.lower() in COOKIE_FIELDS else ""
    found = redact(header + text)
    for kind, count in found.counts:
        counts[kind] = counts.get(kind, 0) + count
    if found.counts:
        return found.text.removeprefix(header)
    if not name or not _is_secret_field(name, text, owner):
        return text
    counts[SECRET_FIELD] = counts.get(SECRET_FIELD, 0) + 1
    return placeholder(SECRET_FIELD)


def _is_secret_field(name: str, text: str, owner: str) -> bool:
    if owner.lower() in COOKIE_FIELDS and is_session(name, text):
        return True
    kind = _secret_by_name(name)
    return kind is not None and looks_secret(text, kind)


def _command(words: list[str], counts: dict[str, int]) -> list[str]:
    """The words of a command without its passwords."""
    if any(_BETWEEN in word for word in words):
        return words
    line = _BETWEEN.join((*words, ""))
    for rule in COMMANDS:
        for anchor in rule.anchors:
            line = _apply(rule, anchor, line, counts)
    return line.split(_BETWEEN)[:-1]


def was_redacted(text: str) -> bool:
    """Whether a text shows that something was removed from it, by us or before it arrived."""
    return "[REDACTED:" in text and _PLACEHOLDER.search(text) is not None


def placeholder(kind: str) -> str:
    """The placeholder for a secret of this kind."""
    return f"[REDACTED:{kind}]"


def _sorted(counts: dict[str, int]) -> Counts:
    return tuple(sorted(counts.items()))


_SECTIONS: tuple[tuple[Rule, ...], ...] = (
    (*PRIVATE_KEYS, *CLOUD_KEYS, *VENDOR_KEYS, *MORE_VENDOR_KEYS),
    (*ENCODED, *HEADERS_AND_URLS, *COMMANDS, *COOKIES),
    (*NAMED_KEYS, *ASSIGNMENTS, *HOMES),
    ADDRESSES,
)
"""In the order in which they run: forms before names, secrets before people. Patterns that match few texts are separate
from those that match many, so that a word such as "secret" does not cause a search for rare forms.
"""
RULES: tuple[Rule, ...] = tuple(chain.from_iterable(_SECTIONS))
_GROUP_LITERALS = 16
"""Most literals searched for at once: with more, the search leaves the processor's vector instructions and is slower. A
literal of one character among others has the same effect, so addresses are searched separately.
"""


def _literals(rule: Rule) -> tuple[str, ...]:
    return rule.literals or rule.anchors


def _test(rules: Iterable[Rule]) -> Test:
    """Whether any of these rules could find something."""
    return Test("|".join(re.escape(literal) for rule in rules for literal in _literals(rule)))


class _Gated(NamedTuple):
    """A rule, and a quick search for its literals: it is skipped if they do not occur."""

    rule: Rule
    test: Test


class _Group(NamedTuple):
    """Neighbouring rules behind one test."""

    test: Test
    rules: tuple[_Gated, ...]


def _groups() -> Iterator[_Group]:
    for section in _SECTIONS:
        group: list[Rule] = []
        for rule in section:
            if group and _size((*group, rule)) > _GROUP_LITERALS:
                yield _group(group)
                group = []
            group.append(rule)
        yield _group(group)


def _size(rules: Iterable[Rule]) -> int:
    return len({literal for rule in rules for literal in _literals(rule)})


def _group(rules: list[Rule]) -> _Group:
    tests = (Test(rule.shape) if rule.shape else _test([rule]) for rule in rules)
    return _Group(_test(rules), tuple(map(_Gated, rules, tests)))


_GROUPS = tuple(_groups())
_ANY = _test(RULES)
_SHORT = 1024
"""Up to this length one slow test of all literals costs less than a fast one for each group."""


def _once(text: str, counts: dict[str, int]) -> str:
    """Apply all rules once, in order."""
    # Lone surrogates cannot be tested; such a text is rare, and all rules run.
    testable = text.isascii() or _is_unicode(text)
    for group in _GROUPS:
        if testable and not group.test.matches(text):
            continue
        for rule, test in group.rules:
            if not testable or test.matches(text):
                for anchor in rule.anchors:
                    text = _apply(rule, anchor, text, counts)
    return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _apply(rule: Rule, anchor: str, text: str, counts: dict[str, int]) -> str:
    """Apply one rule at all places of its anchors."""
    kept: list[str] = []
    done = 0
    at = text.find(anchor)
    while at >= 0:
        found = rule.locate(text, at, done)
        following = at + 1
        for start, end in found if isinstance(found, list) else [found] if found else []:
            following = max(following, end)
            if done <= start < end and _removes_something(text, start, end):
                kept += text[done:start], placeholder(rule.kind)
                counts[rule.kind] = counts.get(rule.kind, 0) + 1
                done = end
        at = text.find(anchor, following)
    if not kept:
        return text
    kept.append(text[done:])
    return "".join(kept)


_PLACEHOLDER = re.compile(r"\[REDACTED:[a-z0-9_]{1,40}\]")
_LONGEST_PLACEHOLDER = 52


def _removes_something(text: str, start: int, end: int) -> bool:
    """Whether a span has characters of its own, and cuts no placeholder: this ends the repetition in `redact`."""
    inside = 0
    for found in _PLACEHOLDER.finditer(text, max(0, start - _LONGEST_PLACEHOLDER), end + _LONGEST_PLACEHOLDER):
        if found.start() < start < found.end() or found.start() < end < found.end():
            return False
        if start <= found.start() and found.end() <= end:
            inside += found.end() - found.start()
    return inside < end - start


class _Node:
    """A container of a JSON value, and its copy once something in it changes."""

    __slots__ = ("copy", "key", "name", "original", "parent")

    def __init__(self, original: Any, parent: "_Node | None", key: Any, name: str) -> None:
        self.original, self.parent, self.key, self.name = original, parent, key, name
        self.copy: Any = None

    def words(self) -> list[str]:
        """The current items of a list; empty for items that are not strings."""
        return [item if isinstance(item, str) else "" for item in self.copy or self.original]


class _Tree:
    """A JSON value that is copied where it is changed."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.names: list[str] = []
        """The names of all fields, once `strings` has been gone through."""
        self.commands: list[_Node] = []
        """The lists that may be commands, likewise."""

    def strings(self) -> Iterator[tuple[_Node | None, Any, str, str]]:
        """(parent node, key or index, name of the field, the string itself)."""
        if isinstance(self.value, str):
            yield None, None, "", self.value
        nodes = [_Node(self.value, None, None, "")] if isinstance(self.value, (dict, list)) else []
        for node in nodes:  # grows during the iteration
            for key, name, item in self._items(node):
                if isinstance(item, str):
                    yield node, key, name, item
                elif isinstance(item, (dict, list)):
                    nodes.append(_Node(item, node, key, name))

    def _items(self, node: _Node) -> Iterator[tuple[Any, str, Any]]:
        if isinstance(node.original, list):
            if is_command(node.original):
                self.commands.append(node)
            option = ""
            for index, item in enumerate(node.original):
                yield index, option or node.name, item
                # ["--password", "..."]: the option names the next word
                option = item if isinstance(item, str) and item.startswith("--") else ""
            return
        # {"name": "API_KEY", "value": "..."}: the way lists of variables are written
        owner = node.original.get("name")
        for key, item in node.original.items():
            name = str(key)
            self.names.append(name)
            yield key, owner if name == "value" and isinstance(owner, str) else name, item

    def write(self, node: _Node | None, key: Any, text: str) -> None:
        """Replace a text."""
        if node is None:
            self.value = text
            return
        is_first = node.copy is None
        if is_first:
            node.copy = node.original.copy()
        node.copy[key] = text
        while is_first:
            parent = node.parent
            if parent is None:
                self.value = node.copy
                return
            is_first = parent.copy is None
            if is_first:
                parent.copy = parent.original.copy()
            parent.copy[node.key] = node.copy
            node = parent
