"""Redaction: secrets and personal data leave a text, a placeholder that says what was there stays.

`redact` and `redact_json` decide what is removed; nothing else in the product does. Guaranteed: the same input gives the
same output everywhere; redacting twice changes and counts nothing more; a text or value in which nothing is found comes
back as the same object; the time is linear in the text. The rules are in `secret_rules`, `private_keys`,
`secret_assignments` and `personal_rules`.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from agents.training.personal_rules import PERSONAL
from agents.training.private_keys import PRIVATE_KEYS
from agents.training.secret_assignments import ASSIGNMENTS, SecretName, looks_secret, secret_name
from agents.training.secret_rules import CLOUD_KEYS, HEADERS_AND_URLS, MORE_VENDOR_KEYS, VENDOR_KEYS
from agents.training.secret_shapes import Rule, Test
from schemas.checked import quick

Counts = tuple[tuple[str, int], ...]

RULES_VERSION = "2"
"""Raised with every change to what is removed (a test holds the rules to it): records that were redacted by other rules are
redacted again before they leave."""

SHORTEST = 6
"""Characters of the shortest thing that any rule removes (an address such as a@b.cd)."""
SECRET_FIELD = "secret_field"  # noqa: S105 - a kind
NAME = "key:"
"""What kinds begin with that were found in the name of a field."""
_AUTHORIZATION = frozenset({"authorization", "proxy-authorization", "proxy_authorization", "x-authorization"})


@quick
class Redacted(NamedTuple):
    """A text without its secrets."""

    text: str
    """The same object as the input when nothing was found."""
    counts: Counts
    """How many of each kind were removed, sorted by kind."""


@quick
class RedactedJson(NamedTuple):
    """A JSON value without its secrets."""

    value: Any
    """The same object as the input when nothing was removed."""
    counts: Counts
    """How many of each kind, sorted by kind. `key:<kind>` was found in the name of a field, and is still there."""


def redact(text: str) -> Redacted:
    """Remove what the rules find."""
    if _is_plain(text):
        return Redacted(text, ())
    counts: dict[str, int] = {}
    cleaned = text
    # A removal can uncover something that stood too close to it, so rules run until there is nothing left to find. This
    # ends: a removal always takes characters that are not part of a placeholder.
    while (result := _once(cleaned, counts)) is not cleaned:
        cleaned = result
    return Redacted(cleaned, _sorted(counts))


def _is_plain(text: str) -> bool:
    """Whether one cheap test shows that no rule can find anything."""
    return len(text) < SHORTEST or (len(text) <= _SHORT and text.isascii() and not _ANY.matches(text))


def contains_secret(text: str) -> bool:
    """Whether `redact` would remove anything: the last check before something leaves."""
    return redact(text).text is not text


def redact_json(value: Any) -> RedactedJson:
    """Redact the strings of a JSON value, and those that only the name of their field gives away.

    Only the containers on the way to a change are copied, and nothing recurses, however deep the value is nested.
    """
    if _is_plain_json(value):
        return RedactedJson(value, ())
    counts: dict[str, int] = {}
    tree = _Tree(value)
    for at, key, name, text in tree.strings():
        cleaned = _field(name, text, counts)
        if cleaned is not text:
            tree.write(at, key, cleaned)
    for name in tree.names:
        for kind, count in redact(name).counts:
            counts[NAME + kind] = counts.get(NAME + kind, 0) + count
    return RedactedJson(tree.value, _sorted(counts))


def _is_plain_json(value: Any) -> bool:
    """Whether cheap tests show that there is nothing to find: most arguments are like that."""
    level = [value]
    for item in level:  # grows while it is gone through
        kind = type(item)
        if kind is str:
            if not _is_plain(item):
                return False
        elif kind is dict:
            if not all(map(_is_plain_name, item)):
                return False
            level.extend(item.values())
        elif kind is list:
            level.extend(item)
    return True


@lru_cache(maxsize=4096)
def _is_plain_name(name: Any) -> bool:
    # {"name": ..., "value": ...} gives a value the name of another field, so it is looked at closely.
    return type(name) is str and name != "value" and _is_plain(name) and _secret_by_name(name) is None


def _secret_by_name(name: str) -> SecretName | None:
    return SecretName.TOKEN if name.lower() in _AUTHORIZATION else secret_name(name)


def has_unremoved(kinds: Iterable[str]) -> bool:
    """Whether something was found in the name of a field, and is still there."""
    return any(kind.startswith(NAME) for kind in kinds)


def _field(name: str, text: str, counts: dict[str, int]) -> str:
    """The text of a field of this name, redacted."""
    found = redact(text)
    for kind, count in found.counts:
        counts[kind] = counts.get(kind, 0) + count
    if found.counts or not name:
        return found.text
    kind_of_name = _secret_by_name(name)
    if kind_of_name is None or not looks_secret(text, kind_of_name):
        return text
    counts[SECRET_FIELD] = counts.get(SECRET_FIELD, 0) + 1
    return placeholder(SECRET_FIELD)


def placeholder(kind: str) -> str:
    """What stands where a secret of this kind was."""
    return f"[REDACTED:{kind}]"


def _sorted(counts: dict[str, int]) -> Counts:
    return tuple(sorted(counts.items()))


RULES: tuple[Rule, ...] = (
    *PRIVATE_KEYS, *CLOUD_KEYS, *VENDOR_KEYS, *MORE_VENDOR_KEYS, *HEADERS_AND_URLS, *ASSIGNMENTS, *PERSONAL,
)  # fmt: skip
"""In the order in which they run: forms before names, secrets before people."""
_GROUP_LITERALS = 18
"""Literals that are looked for at once: with more, the search leaves the processor's vector instructions and is slower."""


def _test(rules: Iterable[Rule]) -> Test:
    """Whether any of these rules could find something."""
    return Test("|".join(re.escape(literal) for rule in rules for literal in rule.literals or rule.anchors))


class _Gated(NamedTuple):
    """A rule behind its own test."""

    rule: Rule
    test: Test


class _Group(NamedTuple):
    """Neighbouring rules behind one test."""

    test: Test
    rules: tuple[_Gated, ...]


def _groups() -> Iterator[_Group]:
    group: list[Rule] = []
    for rule in (*RULES, None):
        size = sum(len(member.literals or member.anchors) for member in group)
        if group and (rule is None or size + len(rule.literals or rule.anchors) > _GROUP_LITERALS):
            tests = (Test(member.shape) if member.shape else _test([member]) for member in group)
            yield _Group(_test(group), tuple(map(_Gated, group, tests)))
            group = []
        if rule is not None:
            group.append(rule)


_GROUPS = tuple(_groups())
_ANY = _test(RULES)
_SHORT = 1024
"""Up to this length one slow test of all literals costs less than a fast one for each group."""


def _once(text: str, counts: dict[str, int]) -> str:
    """All rules, once each, in order."""
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
    """One rule at all places where one of its anchors is."""
    kept: list[str] = []
    done = 0
    at = text.find(anchor)
    while at >= 0:
        span = rule.locate(text, at, done)
        following = at + 1 if span is None else max(at + 1, span[1])
        if span is not None and span[0] < span[1] and _removes_something(text, *span):
            kept.append(text[done : span[0]])
            kept.append(placeholder(rule.kind))
            counts[rule.kind] = counts.get(rule.kind, 0) + 1
            done = span[1]
        at = text.find(anchor, following)
    if not kept:
        return text
    kept.append(text[done:])
    return "".join(kept)


_PLACEHOLDER = re.compile(r"\[REDACTED:[a-z0-9_]{1,40}\]")
_LONGEST_PLACEHOLDER = 52


def _removes_something(text: str, start: int, end: int) -> bool:
    """Whether a span has characters of its own, and cuts no placeholder: what ends the repetition in `redact`."""
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


class _Tree:
    """A JSON value that is copied where it is written to."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.names: list[str] = []
        """The names of all fields, once `strings` has been gone through."""

    def strings(self) -> Iterator[tuple[_Node | None, Any, str, str]]:
        """(where it is, at which key or index, the name of its field, the string itself)."""
        if isinstance(self.value, str):
            yield None, None, "", self.value
        nodes = [_Node(self.value, None, None, "")] if isinstance(self.value, (dict, list)) else []
        for node in nodes:  # grows while it is gone through
            for key, name, item in self._items(node):
                if isinstance(item, str):
                    yield node, key, name, item
                elif isinstance(item, (dict, list)):
                    nodes.append(_Node(item, node, key, name))

    def _items(self, node: _Node) -> Iterator[tuple[Any, str, Any]]:
        if isinstance(node.original, list):
            for index, item in enumerate(node.original):
                yield index, node.name, item
            return
        # {"name": "API_KEY", "value": "..."}: the way lists of variables are written
        owner = node.original.get("name")
        for key, item in node.original.items():
            name = str(key)
            self.names.append(name)
            yield key, owner if name == "value" and isinstance(owner, str) else name, item

    def write(self, node: _Node | None, key: Any, text: str) -> None:
        """Put a text in the place of another."""
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
