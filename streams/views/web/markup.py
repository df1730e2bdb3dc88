"""HTML and SVG, escaped by construction: text becomes markup only through `tag`, which escapes everything that is not markup.

Characters that a browser would obey or that are invisible (controls, marks that turn the direction of writing) are
spelled out. Addresses are checked: a `href` that could leave the site, or run a script, raises.
"""

import re
from collections.abc import Iterable
from html import escape
from typing import Final, final

VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})
"""Elements without content."""

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff9-\uffff\U000e0000-\U000e007f]"
)
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*")
_OWN = re.compile(r"(/(?![/\\])|[#?]|\.)[^\x00-\x20\\]*|")
"""Addresses of this site: absolute or relative paths, queries and fragments."""
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]+")
"""A picture inside of the page."""


@final
class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


NOTHING = Markup("")

Content = str | int | float | None | Iterable["Content"]
"""Markup, text, a number, nothing, or several of these."""


def text(value: object) -> Markup:
    """Text as markup: escaped, with invisible characters spelled out."""
    return Markup(escape(_INVISIBLE.sub(_spelled, str(value)), quote=True))


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def join(*content: Content) -> Markup:
    """Several things as one piece of markup."""
    parts: list[str] = []
    for each in content:
        if isinstance(each, Markup):
            parts.append(each)
        elif isinstance(each, (str, int, float)):
            parts.append(text(each))
        elif each is not None:
            parts.append(join(*each))
    return Markup("".join(parts))


def tag(element: str, /, *content: Content, **attributes: object) -> Markup:
    """An element. Attributes: a trailing underscore is dropped, others become dashes; None and False are left out."""
    written = [element]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        known = key.rstrip("_").replace("_", "-")
        if not _NAME.fullmatch(known) or known.lower().startswith("on") or known == "style":
            raise ValueError(f"{known}: not an attribute that is written here")
        inside = known == "src" and _PICTURE.fullmatch(str(value))
        if known in ("href", "src", "action") and not inside and not _OWN.fullmatch(str(value)):
            raise ValueError(f"{value!r}: not an address of this site")
        written.append(known if value is True else f'{known}="{text(value)}"')
    opened = f"<{' '.join(written)}>"
    return Markup(opened) if element in VOID else Markup(f"{opened}{join(*content)}</{element}>")
