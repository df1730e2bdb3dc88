"""Cookies that authenticate like a password: in the headers of HTTP, in options of curl, in arguments of programs.

Decides by the name and the value together. The value of a cookie named after a session, sign-in or forgery token must
look random; under any other name it must also be long. `theme=dark`, `sessionid=abc123`,
`_ga=GA1.2.1234567890.1234567890` and `session=${SESSION}` stay, and so do the attributes of a cookie.
"""

import re

from agents.redaction.secret_shapes import Rule, Span, is_placeholder, nothing_until, random_length

COOKIE_FIELDS = frozenset({"cookie", "cookies", "set-cookie", "set_cookie", "setcookie"})
"""Names of fields with cookies."""

_QUOTES = r"[\\\"']{0,8}"
_BREAK = r"(?:\s|\\{1,4}n){0,40}"
"""Spaces and line ends, also those of JSON in JSON."""
_OPENING = re.compile(
    rf"(?:(?:ookies?|OOKIES?)(?:{_QUOTES}\s{{0,3}}[:=,]\s{{0,3}}|[ ])(?:(?P<list>\[)?{_BREAK}(?P<object>\{{{_BREAK})?)"  # Cookie: a=b
    rf"|-b[ ]{{0,2}}){_QUOTES}"  # curl -b a=b
)
_NAME = r"(?P<name>[A-Za-z0-9_.$!~*+%\-]{1,64}+)"
_HEADER = rf"{_NAME}={_QUOTES}(?P<value>[^\s;,\"'\\]*+)"
_IN_HEADER = re.compile(rf"{_HEADER}(?:{_QUOTES}[ ]{{0,2}};[ ]{{0,4}})?")
_IN_LIST = re.compile(rf"{_HEADER}(?:{_QUOTES}[ ]{{0,2}};[ ]{{0,4}}|{_QUOTES}{_BREAK},{_BREAK}{_QUOTES})?")
_IN_OBJECT = re.compile(
    rf"{_NAME}{_QUOTES}[ ]?:[ ]?{_QUOTES}(?P<value>[^\s;,\"'\\{{}}]*+)"
    rf"(?:{_QUOTES}{_BREAK}(?:,|\}}{_BREAK},{_BREAK}\{{){_BREAK}{_QUOTES})?"
)
_SAYS_SESSION = re.compile(
    r"sess|sid\b|(?:^|[_.\-])sid|sso|auth|token|jwt|csrf|xsrf|login|logged|remember|ticket|credential|identity|passport",
    re.IGNORECASE,
)
_ATTRIBUTES = frozenset({"path", "domain", "expires", "max-age", "samesite", "priority", "version", "comment"})
_SAID, _UNSAID = 10, 20
"""Random characters needed in the value of a cookie with a telling name, and of any other cookie."""


def is_session(name: str, value: str) -> bool:
    """Whether this cookie identifies its holder."""
    if len(value) < _SAID or is_placeholder(value) or name.lower() in _ATTRIBUTES:
        return False
    return random_length(value) >= (_SAID if _SAYS_SESSION.search(name) else _UNSAID)


def _cookies(text: str, at: int, floor: int) -> list[Span] | None:  # noqa: ARG001 - a Locate
    opening = _OPENING.match(text, at)
    if opening is None:
        return None
    cookie = _IN_OBJECT if opening["object"] else _IN_LIST if opening["list"] else _IN_HEADER
    found: list[Span] = []
    end = opening.end()
    while (each := cookie.match(text, end)) is not None:
        end = each.end()
        if is_session(each["name"], each["value"]):
            found.append(each.span("value"))
    return [*found, nothing_until(end)]


COOKIES: tuple[Rule, ...] = (
    Rule("session_cookie", ("ookie", "OOKIE"), _cookies),
    Rule("session_cookie", ("-b",), _cookies, literals=("curl",)),
)
