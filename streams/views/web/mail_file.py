"""One file to mail: the pages of a rollout in one HTML document that needs no other file.

Style and script are inside, allowed by their digests; other scripts cannot run, and no resource may be loaded.
"""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from schemas.training import DpoRecord
from streams.views.web.branch_page import branch_page
from streams.views.web.links import FileLinks, Picture
from streams.views.web.markup import Markup, tag
from streams.views.web.pair_page import pair_page
from streams.views.web.rollout_page import rollout_page
from streams.views.web.row_page import Checked, row_page
from streams.views.web.sight import Sight

STATIC = Path(__file__).with_name("static")

PAIRS = 40
"""Pairs of preference rows that are in the file side by side."""


def mail_file(sight: Sight, checked: Checked | None, place: str, picture: Picture = lambda _digest: None) -> str:
    """The whole document; `picture` returns screenshots for their digests."""
    style, script = (STATIC / "view.css").read_text("utf-8"), (STATIC / "view.js").read_text("utf-8")
    rows = [(row.chosen_branch, row.rejected_branch) for row in sight.account.all(DpoRecord)][:PAIRS]
    links = FileLinks(frozenset(rows), picture)
    pairs = [
        (one, other) for a, b in rows if (one := sight.strand(a)) is not None and (other := sight.strand(b)) is not None
    ]
    own = f"style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    whole = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="referrer", content="no-referrer"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{sight.rollout_id} · braid"),
            tag("style", Markup(style)),
        ),
        tag(
            "body",
            _top(sight),
            tag(
                "main",
                tag("article", rollout_page(sight, links), id="rollout"),
                *(
                    _leaf(f"branch-{strand.branch}", branch_page(sight, strand, links, prefix=f"branch-{strand.branch}-"))
                    for strand in sight.strands
                ),
                *(
                    _leaf(f"pair-{a.branch}-{b.branch}", pair_page(sight, a, b, links, prefix=f"pair-{a.branch}-{b.branch}-"))
                    for a, b in pairs
                ),
                _leaf("rows", row_page(sight, checked, links)),
                id="content",
            ),
            tag("footer", tag("span", place), tag("span", "Times are UTC")),
            tag("script", Markup(script)),
        ),
        lang="en",
    )  # fmt: skip
    return f"<!doctype html>\n{whole}\n"


def _leaf(name: str, content: Markup) -> Markup:
    return tag("article", content, id=name, class_="leaf")


def _top(sight: Sight) -> Markup:
    theme = tag("button", "Theme", type="button", id="theme", hidden=True)
    return tag("header", tag("span", "braid", class_="brand"), _contents(sight), theme, class_="top")


def _contents(sight: Sight) -> Markup:
    branches = [tag("a", strand.branch, href=f"#branch-{strand.branch}") for strand in sight.strands[:64]]
    return tag(
        "nav",
        tag("a", "Rollout", href="#rollout"),
        tag("a", "Rows", href="#rows"),
        tag("span", "Branches", class_="note"),
        *branches,
        class_="tabs jump",
        aria_label="Pages",
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
