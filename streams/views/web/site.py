"""The site: the page of each address, and its content."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import orjson

from agents.workspace.snapshot_adapter import SnapshotStore
from schemas.errors import BraidError
from streams.cluster.config import Role, Settings
from streams.log.index_queries import IndexRow, Wanted, letters_at
from streams.log.terminal_text import line
from streams.services.view.follower import Follower
from streams.services.view.view_app import READERS, Answer, Asked, packed
from streams.views.web.braid_svg import SCALES, Zoom
from streams.views.web.branch_page import branch_page, turn_page
from streams.views.web.letters_page import SIZE as LETTERS
from streams.views.web.letters_page import letters_page
from streams.views.web.links import Links
from streams.views.web.list_page import MINUTES, SIZE, Listing, list_page
from streams.views.web.markup import Content, tag
from streams.views.web.page_frame import Head, document, link
from streams.views.web.pair_page import pair_page
from streams.views.web.rollout_page import rollout_page
from streams.views.web.row_page import row_page
from streams.views.web.sights import BadQueryError, Kept, NotFoundError, Sights, place_among, whole_number
from streams.views.web.site_data import JSON, SiteData

STATIC = Path(__file__).with_name("static")
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"

PAGES = 24
"""Rendered pages that are kept: fifty people who look at one page cost as much as one."""
WAITS_S = 0.3
"""Seconds that the list takes to read why rollouts wait."""
WORK_ROLES: tuple[Role, ...] = ("verifier", "operator")


class BraidSite:
    """All pages of the log that a follower reads."""

    def __init__(
        self,
        settings: Settings,
        follower: Follower,
        keys: Mapping[str, bytes],
        snapshots: SnapshotStore,
        verify_with: str,
    ) -> None:
        self._follower = follower
        self._sights = Sights(settings, follower, keys, verify_with)
        self._data = SiteData(self._sights, snapshots)
        self._snapshots = snapshots
        self._links = Links(snapshots.picture)
        self._pages = Kept(PAGES)
        self._waits: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in KINDS}
        self._build = sha256(b"".join(body for _, body in sorted(self._files.items()))).hexdigest()[:8]

    # -- the port of the server --------------------------------------------------------------------------------------------------

    def needs(self, path: tuple[str, ...]) -> tuple[tuple[Role, ...], str | None]:
        """The roles, one of which is needed, and the rollout that a path is about."""
        if path[:2] in (("v1", "work"), ("v1", "snapshots")):
            return WORK_ROLES, None
        about = path[1:] if path[:1] == ("v1",) else path
        return READERS, about[1] if len(about) > 1 and about[0] == "rollouts" else None

    def static(self, name: str) -> Answer:
        """Answer with one of the bundled static files."""
        body = self._files.get(name)
        if body is None:
            return self.failed(404, f"there is no file {line(name)}", ("static", name))
        return Answer(200, KINDS[Path(name).suffix], body, sha256(body).hexdigest()[:16])

    def failed(self, status: int, reason: str, path: tuple[str, ...]) -> Answer:
        """The page, or the object, for a refusal."""
        if path[:1] == ("v1",):
            return Answer(status, JSON, orjson.dumps({"error": line(reason, 1000), "status": status}))
        content = (
            tag(
                "h1", {404: "Not found", 401: "A token is needed", 403: "Not allowed"}.get(status, "That did not work")
            ),
            tag("p", line(reason, 1000)),
            tag("p", link("All rollouts", self._links.rollouts())) if status == 404 else None,
        )
        # An unknown rollout may be opened at any moment: its page waits for it.
        awaited = path[1] if status == 404 and len(path) > 1 and path[0] == "rollouts" else None
        head = Head(str(status), live=awaited)
        return Answer(status, HTML, document(head, self._links, self._follower.place, *content).encode())

    async def answer(self, asked: Asked) -> Answer:
        """One page."""
        if self._follower.reader is None or self._follower.index is None:
            raise BraidError(f"the log cannot be read at the moment: {self._follower.trouble}")
        try:
            return await self._routed(asked)
        except NotFoundError as error:
            return self.failed(404, str(error), asked.path)
        except BadQueryError as error:
            return self.failed(400, str(error), asked.path)

    async def _routed(self, asked: Asked) -> Answer:  # noqa: PLR0911 - the table of all pages
        match asked.path:
            case ():
                return await self._list(asked)
            case ("dead-letters",):
                return await self._letters(asked)
            case ("rollouts", rollout_id):
                return await self._rollout(asked, rollout_id)
            case ("rollouts", rollout_id, "rows"):
                return await self._rows(asked, rollout_id)
            case ("rollouts", rollout_id, "branches", branch):
                return await self._branch(asked, rollout_id, branch)
            case ("rollouts", rollout_id, "branches", branch, "screenshot"):
                return await self._screenshot(rollout_id, branch)
            case ("rollouts", rollout_id, "branches", branch, "turns", turn):
                return await self._turn(rollout_id, branch, turn)
            case ("rollouts", rollout_id, "branches", branch, "turns", turn, "calls", call):
                return await self._output(rollout_id, branch, turn, call)
            case ("rollouts", rollout_id, "pairs", one, other):
                return await self._pair(asked, rollout_id, one, other)
            case ("v1", *_):
                return await self._data.answer(asked)
        raise NotFoundError(f"there is no page /{'/'.join(asked.path)}")

    # -- pages -------------------------------------------------------------------------------------------------------------------------

    def _page(self, head: Head, *content: Content) -> Answer:
        body = document(head, self._links, self._follower.place, *content).encode()
        return Answer(200, HTML, packed(body), head.state or None, packed=True)

    async def _of_rollout(
        self, asked: Asked, rollout_id: str, name: str, make: Callable[[str], Awaitable[Answer]]
    ) -> Answer:
        """A page about one rollout, made once for each version of it. Raises NotFoundError."""
        state = self._state(*self._sights.version(rollout_id))
        if asked.known == state:
            return Answer(200, HTML, b"", state)
        return await self._pages.get_or_make(f"{name} {rollout_id}", state, lambda: make(state))

    def _crumbs(self, rollout_id: str, *more: tuple[str, str | None]) -> tuple[tuple[str, str | None], ...]:
        return (("Rollouts", self._links.rollouts()), (rollout_id, self._links.rollout(rollout_id)), *more)

    def _state(self, *parts: object) -> str:
        return "-".join(str(part) for part in (self._build, *parts))

    async def _list(self, asked: Asked) -> Answer:
        index, query = self._sights.index, asked.query
        wanted = Wanted(query.get("status") or None, query.get("q", "")[:200], asked.bound)
        first = whole_number(query, "first", 0, 10**9)
        state = self._state(self._follower.generation, index.tick, index.ready)
        if asked.known == state:
            return Answer(200, HTML, b"", state)

        async def make() -> Answer:
            total, rows = index.rollouts(wanted, SIZE, first)
            waits = await self._waiting(rows) if index.ready else {}
            if len(self._waits) > 10_000:
                self._waits.clear()
            bound = asked.bound is not None
            listing = Listing(
                wanted,
                first,
                total,
                rows,
                waits,
                {} if bound else index.statuses(),
                None if bound else index.activity(MINUTES),
                None if index.ready else index.share,
            )
            head = Head(
                "Rollouts",
                data=self._links.data("rollouts", status=wanted.status, q=wanted.text, first=first or None),
                live="",
                state=state,
            )
            return self._page(head, list_page(listing, self._links))

        return await self._pages.get_or_make(f"list {asked.bound} {wanted} {first}", state, make)

    async def _waiting(self, rows: Sequence[IndexRow]) -> dict[str, tuple[str, ...]]:
        """Why rollouts of the list wait: for as many as can be read in a moment; the others show it on their pages, or
        next time.
        """
        waits: dict[str, tuple[str, ...]] = {}
        until = time.monotonic() + WAITS_S
        for row in rows:
            if row.status not in ("open", "settled"):
                continue
            known = self._waits.get(row.rollout_id)
            if known is None or known[0] != row.changed:
                if time.monotonic() > until:
                    continue
                known = row.changed, (await self._sights.sight(row.rollout_id)).waits
                self._waits[row.rollout_id] = known
            waits[row.rollout_id] = known[1]
        return waits

    async def _rollout(self, asked: Asked, rollout_id: str) -> Answer:
        query = asked.query
        if "a" in query and "b" in query:
            return await self._pair(asked, rollout_id, query["a"].strip(), query["b"].strip())
        scale = whole_number(query, "zoom", 1, 4)
        zoom = Zoom(
            scale if scale in SCALES else 1,
            frozenset(query.get("fold", "").split(",")) - {""},
            whole_number(query, "first", 0, 10**6),
        )

        async def make(state: str) -> Answer:
            sight = await self._sights.sight(rollout_id)
            head = Head(
                rollout_id,
                (("Rollouts", self._links.rollouts()),),
                self._links.data("rollouts", rollout_id),
                rollout_id,
                state,
            )
            return self._page(head, rollout_page(sight, self._links, zoom))

        name = f"rollout {zoom.scale} {sorted(zoom.folded)} {zoom.first}"
        return await self._of_rollout(asked, rollout_id, name, make)

    async def _branch(self, asked: Asked, rollout_id: str, branch: str) -> Answer:
        first = whole_number(asked.query, "first", 0, 10**6)

        async def make(state: str) -> Answer:
            sight, strand = await self._sights.strand(rollout_id, branch)
            data = self._links.data("rollouts", rollout_id, "branches", strand.branch, first=first or None)
            head = Head(f"Branch {strand.branch}", self._crumbs(rollout_id), data, rollout_id, state)
            return self._page(head, branch_page(sight, strand, self._links, first))

        return await self._of_rollout(asked, rollout_id, f"branch {branch[:9]!r} {first}", make)

    async def _turn(self, rollout_id: str, branch: str, turn: str) -> Answer:
        sight, strand = await self._sights.strand(rollout_id, branch)
        number = place_among(turn, len(strand.transcript.turns))
        head = Head(
            f"Turn {number}", self._crumbs(rollout_id, (f"Branch {strand.branch}", self._links.branch(rollout_id, strand.branch))),
            self._links.data("rollouts", rollout_id, "branches", strand.branch, "turns", number), None,
            self._state(*self._sights.version(rollout_id)),
        )  # fmt: skip
        return self._page(head, turn_page(sight, strand, number, self._links))

    async def _screenshot(self, rollout_id: str, branch: str) -> Answer:
        _, strand = await self._sights.strand(rollout_id, branch)
        digest = next((each.screenshot for each in strand.verdicts if each.screenshot), None)
        picture = None if digest is None else self._snapshots.picture(digest)
        if picture is None:
            raise NotFoundError(f"no screenshot of branch {strand.branch} is kept here")
        return Answer(200, "image/png", picture, digest)

    async def _output(self, rollout_id: str, branch: str, turn: str, call: str) -> Answer:
        _, strand = await self._sights.strand(rollout_id, branch)
        turns = strand.transcript.turns
        calls = turns[place_among(turn, len(turns))].calls
        found = calls[place_among(call, len(calls))]
        return Answer(
            200, TEXT, (found.output if found.output is not None else found.error or "").encode(errors="replace")
        )

    async def _pair(self, asked: Asked, rollout_id: str, one: str, other: str) -> Answer:
        async def make(state: str) -> Answer:
            sight, a = await self._sights.strand(rollout_id, one)
            _, b = await self._sights.strand(rollout_id, other)
            if a.branch == b.branch and not sight.repairs(a.branch):
                raise NotFoundError(f"branch {a.branch} cannot stand beside itself: name two branches")
            data = self._links.data("rollouts", rollout_id, "pairs", a.branch, b.branch)
            head = Head(f"{a.branch} and {b.branch}", self._crumbs(rollout_id), data, rollout_id, state)
            return self._page(head, pair_page(sight, a, b, self._links))

        return await self._of_rollout(asked, rollout_id, f"pair {one[:9]!r} {other[:9]!r}", make)

    async def _rows(self, asked: Asked, rollout_id: str) -> Answer:
        async def make(state: str) -> Answer:
            sight, checked = await self._sights.sight(rollout_id), await self._sights.checked(rollout_id)
            data = self._links.data("rollouts", rollout_id, "rows")
            head = Head("Rows", self._crumbs(rollout_id), data, rollout_id, state)
            return self._page(head, row_page(sight, checked, self._links))

        return await self._of_rollout(asked, rollout_id, "rows", make)

    async def _letters(self, asked: Asked) -> Answer:
        first, rollout_id = (
            whole_number(asked.query, "first", 0, 10**9),
            asked.bound or asked.query.get("rollout") or None,
        )
        total, places = self._sights.index.letters(LETTERS, first, rollout_id)
        letters = await letters_at(self._sights.log, places)
        head = Head(
            "Dead letters", data=self._links.data("dead-letters", first=first or None, rollout=rollout_id), live="",
            state=self._state(self._follower.generation, self._sights.index.tick),
        )  # fmt: skip
        return self._page(head, letters_page(letters, total, first, rollout_id, self._links))
