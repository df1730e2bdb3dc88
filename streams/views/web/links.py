"""Addresses of pages: of a server, or inside one file."""

from base64 import b64encode
from collections.abc import Callable, Collection
from urllib.parse import quote, urlencode

TURNS = 40
"""Turns on a page of a branch."""

PICTURES = 8 * 1024 * 1024
"""Bytes of screenshots in one file."""

Picture = Callable[[str], bytes | None]
"""Returns a screenshot for its digest."""


class Links:
    """The addresses of a server's pages."""

    is_file = False

    def __init__(self, picture: Picture = lambda _digest: None) -> None:
        self._picture = picture

    def screenshot(self, rollout_id: str, branch: int, digest: str) -> str | None:
        """The picture that the visual verifier took; None when it is not kept here."""
        if self._picture(digest) is None:
            return None
        return f"/rollouts/{_part(rollout_id)}/branches/{branch}/screenshot?digest={digest[:16]}"

    def rollouts(self, **query: object) -> str | None:
        """The list."""
        return "/" + _query(query)

    def rollout(self, rollout_id: str, **query: object) -> str | None:
        """A rollout."""
        return f"/rollouts/{_part(rollout_id)}{_query(query)}"

    def branch(self, rollout_id: str, branch: int, turn: int | None = None, **query: object) -> str | None:
        """The link to a branch; to a turn, if one is given, on the page of the branch that has it."""
        at = "" if turn is None else f"#turn-{turn}"
        if turn is not None and turn >= TURNS:
            query["first"] = turn // TURNS * TURNS
        return f"/rollouts/{_part(rollout_id)}/branches/{branch}{_query(query)}{at}"

    def turn(self, rollout_id: str, branch: int, turn: int) -> str | None:
        """The messages that the model saw before a turn."""
        return f"/rollouts/{_part(rollout_id)}/branches/{branch}/turns/{turn}"

    def output(self, rollout_id: str, branch: int, turn: int, call: int) -> str | None:
        """The link to a whole output, as plain text."""
        return f"/rollouts/{_part(rollout_id)}/branches/{branch}/turns/{turn}/calls/{call}"

    def pair(self, rollout_id: str, one: int, other: int) -> str | None:
        """Two branches side by side."""
        return f"/rollouts/{_part(rollout_id)}/pairs/{one}/{other}"

    def rows(self, rollout_id: str, record_id: str | None = None) -> str | None:
        """The rows of a rollout; at one of them, when it is named."""
        return f"/rollouts/{_part(rollout_id)}/rows" + ("" if record_id is None else f"#{anchor(record_id)}")

    def letters(self, **query: object) -> str | None:
        """Dead letters."""
        return "/dead-letters" + _query(query)

    def data(self, *parts: object, **query: object) -> str | None:
        """The link to the same data as JSON."""
        return "/" + "/".join(_part(str(part)) for part in ("v1", *parts)) + _query(query)

    def static(self, name: str) -> str:
        """A file of ours."""
        return f"/static/{name}"


class FileLinks(Links):
    """Addresses inside one file: anchors. Pages outside the file have no link."""

    is_file = True

    def __init__(self, pairs: Collection[tuple[int, int]] = (), picture: Picture = lambda _digest: None) -> None:
        super().__init__(picture)
        self._pairs = pairs
        self._left = PICTURES

    def screenshot(self, rollout_id: str, branch: int, digest: str) -> str | None:
        """The picture itself, as long as the file does not become too large."""
        del rollout_id, branch
        picture = self._picture(digest)
        if picture is None or len(picture) > self._left:
            return None
        self._left -= len(picture)
        return f"data:image/png;base64,{b64encode(picture).decode()}"

    def rollouts(self, **_query: object) -> str | None:
        """Not in the file."""
        return None

    def rollout(self, rollout_id: str, **query: object) -> str | None:
        """The first page."""
        del rollout_id
        return None if query else "#rollout"

    def branch(self, rollout_id: str, branch: int, turn: int | None = None, **query: object) -> str | None:
        """A section."""
        del rollout_id, query
        return f"#branch-{branch}" if turn is None else f"#branch-{branch}-turn-{turn}"

    def turn(self, rollout_id: str, branch: int, turn: int) -> str | None:
        """None: the file contains everything before a turn, but no page for it."""
        del rollout_id, branch, turn
        return None

    def output(self, rollout_id: str, branch: int, turn: int, call: int) -> str | None:
        """Not in the file."""
        del rollout_id, branch, turn, call
        return None

    def pair(self, rollout_id: str, one: int, other: int) -> str | None:
        """A section, for pairs that became rows."""
        del rollout_id
        return f"#pair-{one}-{other}" if (one, other) in self._pairs else None

    def rows(self, rollout_id: str, record_id: str | None = None) -> str | None:
        """A section."""
        del rollout_id
        return "#rows" if record_id is None else f"#{anchor(record_id)}"

    def letters(self, **_query: object) -> str | None:
        """Not in the file."""
        return None

    def data(self, *parts: object, **query: object) -> str | None:
        """Not in the file."""
        del parts, query
        return None


def anchor(record_id: str) -> str:
    """The name of a record's place on a page."""
    return "r-" + quote(record_id, safe="")


def _part(text: str) -> str:
    return quote(text, safe="")


def _query(query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""
