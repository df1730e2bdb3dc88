"""Compares two texts: the lines of one that the other lacks."""

from difflib import SequenceMatcher

from streams.views.web.markup import Content, tag

TEXT = 3000
"""Characters of a text that is compared."""


def differences(own: str, other: str, kind: str) -> list[Content]:
    """The lines of a text; those that the other one lacks are elements of this kind."""
    mine, theirs = own.split("\n"), other.split("\n")
    matcher = SequenceMatcher(None, mine, theirs, autojunk=len(mine) + len(theirs) > 400)
    found: list[Content] = []
    for what, start, end, _, _ in matcher.get_opcodes():
        if start == end:
            continue
        text = "\n".join(mine[start:end]) + ("\n" if end < len(mine) else "")
        found.append(text if what == "equal" else tag(kind, text))
    return found
