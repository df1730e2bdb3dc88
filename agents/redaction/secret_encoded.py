"""Secrets in base64: private keys, tokens of well-known forms, and the values of a Kubernetes Secret.

Base64 is not encryption, and looks like any other data. So it is removed only if it decodes to a secret of a well-known
form, or if it is a value in the `data` of a manifest of kind Secret.
"""

import base64
import binascii
import re
from collections.abc import Iterator

from agents.redaction.secret_shapes import Rule, Span, end_of, starts_word

_HEAD = re.compile(r"[A-Za-z0-9+/]{4,64}")
_WHOLE = re.compile(r"(?:[A-Za-z0-9+/]{60,}+(?:\r?\n|\\{1,4}n)[ \t]{0,16})*+[A-Za-z0-9+/_\-]*+={0,2}")
"""Base64 in lines, as tools wrap it; the last line may be short."""


def decoded(text: str) -> bytes | None:
    """Decode base64 of either alphabet, with or without padding; None if it is not base64."""
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return None


def _beginning(text: str, at: int, floor: int) -> bytes:
    """Decode the beginning of the base64 here; empty in the middle of a word."""
    found = _HEAD.match(text, at)
    if found is None or not starts_word(text, at, floor):
        return b""
    return decoded(found[0][: len(found[0]) // 4 * 4]) or b""


def _private_key(text: str, at: int, floor: int) -> Span | None:
    return (at, end_of(_WHOLE, text, at)) if b"PRIVATE KEY" in _beginning(text, at, floor) else None


_TOKEN = re.compile(
    rb"gh[posur]_[A-Za-z0-9]{20}|github_pat_[A-Za-z0-9_]{20}|sk-(?:ant|proj)-[A-Za-z0-9_\-]{20}|glpat-[A-Za-z0-9_\-]{20}"
    rb"|xox[abpors]-[A-Za-z0-9\-]{16}|AKIA[A-Z0-9]{16}"
)


def _token(text: str, at: int, floor: int) -> Span | None:
    return (at, end_of(_WHOLE, text, at)) if _TOKEN.match(_beginning(text, at, floor)) else None


# --- Kubernetes -------------------------------------------------------------------------------------------------------

_LONGEST_MANIFEST = 65_536
_LINE_END = r"(?:\r?\n|\\{1,4}n)"
_DATA = re.compile(
    rf"(?:\A|\n|\\n)(?P<indent>[ ]{{0,40}}(?:-[ ])?)data:[ ]{{0,4}}(?={_LINE_END})"
    r"|[\"'](?P<json>data)\\{0,7}[\"'][ ]?:\s{0,4}\{"
)
_YAML_ITEM = re.compile(
    rf"(?:{_LINE_END}[ ]{{0,48}}#[^\n\\]{{0,200}}){{0,8}}"  # comments
    rf"{_LINE_END}(?P<indent>[ ]{{0,48}})[\\\"']{{0,8}}[A-Za-z0-9_.\-]{{1,253}}+[\\\"']{{0,8}}:[ ]{{1,4}}[\\\"']{{0,8}}"
    rf"(?P<value>[^\s\"'\\]*+)[\\\"']{{0,8}}(?=[ \t]{{0,4}}(?:{_LINE_END}|\Z))"
)
_JSON_ITEM = re.compile(
    r"(?:[\s,]|\\{1,4}n){0,64}+\\{0,7}[\"'][A-Za-z0-9_.\-]{1,253}+\\{0,7}[\"'][ ]?:[ ]?\\{0,7}[\"']"
    r"(?P<value>[^\s\"'\\]*+)\\{0,7}[\"']"
)


def _manifest(text: str, at: int, floor: int) -> list[Span]:  # noqa: ARG001 - a Locate
    """The values of the Secret whose kind is here."""
    return [(start, end) for start, end in _values(text, at) if _is_encoded(text[start:end])]


def _is_encoded(value: str) -> bool:
    return len(value) >= 8 and len(value) % 4 == 0 and decoded(value) is not None


def _values(text: str, at: int) -> Iterator[Span]:
    """The values of the manifest's data: before its kind, as tools sort it, or behind it, as people write it."""
    data = _DATA.search(text, _start(text, at), at) or _DATA.search(text, at, _end(text, at))
    if data is None:
        return
    item = _YAML_ITEM if data["json"] is None else _JSON_ITEM
    found = item.match(text, data.end())
    while found is not None:
        if data["json"] is None and len(found["indent"]) <= len(data["indent"]):
            return
        yield found.span("value")
        found = item.match(text, found.end())


_MARKS = ("kind", "---", "```")
"""One of these separates two manifests."""


def _start(text: str, at: int) -> int:
    """The start of the manifest whose kind is here; this place, if it is not known."""
    first = max(0, at - _LONGEST_MANIFEST)
    for mark in _MARKS:
        first = max(first, text.rfind(mark, first, at))
    start = text.rfind("apiVersion", first, at)
    return at if start < 0 else start


def _end(text: str, at: int) -> int:
    """Where it ends."""
    end = min(len(text), at + _LONGEST_MANIFEST)
    for mark in _MARKS:
        found = text.find(mark, at + 4, end)
        end = end if found < 0 else found
    return end


_TOKENS = "Z2hwX Z2hvX Z2hzX Z2h1X Z2hyX Z2l0aHViX3BhdF c2stYW50L c2stcHJvai Z2xwYXQt eG94 QUtJQ"
"""How tokens of GitHub, Anthropic, OpenAI, GitLab, Slack and AWS begin in base64."""

ENCODED: tuple[Rule, ...] = (
    Rule("private_key", ("LS0tLS1CRUdJTi",), _private_key),
    Rule(
        "encoded_token", tuple(_TOKENS.split()), _token, ("Z2h", "Z2l0aHViX3BhdF", "c2st", "Z2xwYXQt", "eG94", "QUtJQ")
    ),
    Rule(
        "kubernetes_secret",
        ("kind: Secret", 'kind": "Secret', 'kind":"Secret', 'kind\\": \\"Secret', 'kind\\":\\"Secret'),
        _manifest,
        ("kind: Secret", 'kind": "Secret', 'kind":"Secret', 'kind\\":'),
    ),
)
