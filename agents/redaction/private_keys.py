"""Private keys: PEM and PGP blocks, also those whose beginning or end was truncated.

Line ends may be real, or the `\\n` of a JSON string, or those of quoted source lines. A marker without key material, as
in code that searches for keys, is left alone.
"""

import re

from agents.redaction.secret_shapes import Rule, Span, after_escape, random_length, token

LONGEST_KEY = 65_536
"""Characters between the BEGIN and END of a key; a longer block is treated as cut off."""
_KEY_BEGIN = re.compile(r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/]{16}")
_KEY_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_BETWEEN = " \t\r\n\"'+,>|\\"
"""Characters between two lines of a key: line ends, and those added by source code and quoted mails."""
_CUT_KEY = re.compile(
    r"(?:[\s\\nr]{0,8}[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,100}){0,4}"  # Proc-Type, DEK-Info, Version
    r"(?:[\s\"'+,>|\\]{0,64}[A-Za-z0-9+/=]{16,}+)*+"
    r"(?P<tail>(?:\r?\n|\\r|\\n)[\s\"'+,>|\\]{0,64}(?P<last>[A-Za-z0-9+/=]{1,15}+)(?=\s*\Z|\.\.\.|…|[\"'\[\\<-]))?"
)


def _private_key(text: str, at: int, floor: int) -> Span | None:  # noqa: ARG001 - a Locate
    begin = _KEY_BEGIN.match(text, at)
    if begin is None:
        return None
    following = text.find("-----BEGIN", begin.end())
    limit = min(begin.end() + LONGEST_KEY, len(text) if following < 0 else following)
    end = _KEY_END.search(text, begin.end(), limit)
    if end is not None:
        return (at, end.end()) if _KEY_MATERIAL.search(text, begin.end(), end.start()) else None
    cut = _CUT_KEY.match(text, begin.end())
    assert cut is not None  # all of it is optional
    if cut["last"] and not (cut["last"].isalpha() and random_length(cut["last"]) == 0):
        return at, cut.end()
    stop = cut.start("tail") if cut["last"] else cut.end()  # a word at the end follows the key and is not part of it
    return (at, stop) if _KEY_MATERIAL.search(text, begin.end(), stop) else None


def _end_of_private_key(text: str, at: int, floor: int) -> Span | None:
    """A key whose beginning was cut off: the lines of key material before its END."""
    end = _KEY_END.match(text, at)
    if end is None:
        return None
    start, is_last = at, True
    while start > floor:
        window = text[max(floor, start - 256) : start]
        line_end = len(window.rstrip(_BETWEEN))
        piece = window[len(window[:line_end].rstrip(_KEY_CHARACTERS)) : line_end]
        before = start - len(window) + line_end - len(piece)
        is_escape = piece in {"n", "r"} and text[before - 1 : before] == "\\"
        is_first = len(piece) < 16 and not is_last and not is_escape
        if not piece or (is_first and random_length(piece) == 0):
            break
        start, is_last = before, is_last and is_escape
        if is_first:
            break
    start = after_escape(text, start)
    return (start, end.end()) if _KEY_MATERIAL.search(text, start, at) else None


PRIVATE_KEYS: tuple[Rule, ...] = (
    Rule("private_key", ("-----BEGIN",), _private_key),
    Rule("private_key", ("-----END",), _end_of_private_key),
    token("private_key", "AGE-SECRET-KEY-1", "0-9A-Z", 20),
)
