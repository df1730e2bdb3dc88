"""Markup is escaped by construction: whatever text goes in, only our own elements come out."""

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.views.web.markup import join, tag
from tests.streams.views.web.view_data_lines import HOSTILE


class Elements(HTMLParser):
    """The elements of a document, and its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.said += data


def parsed(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    found.close()
    return found


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_stays_text(content: str, value: str) -> None:
    found = parsed(tag("p", content, title=value))
    assert found.names == ["p"]
    assert [name for name, _ in found.attributes] == ["title"]


@pytest.mark.parametrize("bad", HOSTILE)
def test_hostile_text_is_shown_as_it_is(bad: str) -> None:
    found = parsed(join(tag("p", bad), bad))
    assert found.names == ["p"]
    assert "\x1b" not in found.said
    assert "\u202e" not in found.said


@pytest.mark.parametrize(
    "href",
    [
        "javascript:alert(1)",
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        " /x",
        "data:text/html,x",
        "JaVaScript:x",
    ],
)
def test_an_address_outside_is_refused(href: str) -> None:
    with pytest.raises(ValueError, match="not an address of this site"):
        tag("a", "x", href=href)


def test_handlers_and_inline_styles_cannot_be_written() -> None:
    bad: dict[str, Any]
    for bad in ({"onclick": "x"}, {"style": "x"}, {"on_load": "x"}, {"a b": "x"}):
        with pytest.raises(ValueError, match="not an attribute"):
            tag("a", "x", **bad)
