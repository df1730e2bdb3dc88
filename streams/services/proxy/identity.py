"""Which branch a request belongs to, and where it goes: read from its path, its headers, or its token. Pure.

/r/<rollout>/b/<branch>[/a/<attempt>]/<upstream>/v1/...     identity in the path, ids percent-encoded
/r/<rollout>/b/<branch>[/a/<attempt>]/end                   the branch is over
/<upstream>/v1/...                                          identity in X-Braid-Rollout, -Branch, -Attempt, or bound to the token
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from schemas.base import MAX_ID, MAX_INDEX
from streams.services.gateway.problems import RefusedError
from streams.services.web.auth import Caller

HOW = (
    "say which branch this call belongs to: in the path (/r/<rollout>/b/<branch>/<upstream>/v1/...), in the headers X-Braid-Rollout "
    "and X-Braid-Branch, or with a token that is bound to a branch; `braid proxy --adopt` captures calls without it"
)

POLICY_VERSION = "x-braid-policy-version"
"""The version of the policy that is asked, for engines that do not return it."""

HEADERS = frozenset({"x-braid-rollout", "x-braid-branch", "x-braid-attempt", "x-braid-token", POLICY_VERSION})
"""Headers of the proxy; never forwarded."""


_LEADS_OUT = re.compile(r"(?:[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?=[/\\;]|%2f|%5c|%3b|$)", re.IGNORECASE)
"""A dot segment, however it is written."""


class BranchId(NamedTuple):
    """A branch."""

    rollout_id: str
    branch_index: int = 0
    attempt: int = 0


class Target(NamedTuple):
    """The parts of a request's path."""

    branch: BranchId | None
    """The branch that the path names."""
    upstream: str
    """The first name after it; `end` where the branch ends."""
    path: str
    """The rest, unchanged: it is appended to the upstream's URL, without the query."""
    query: str


def read_target(raw: str) -> Target:
    """Split the target in the request line. Raises RefusedError (400).

    A path stays below its upstream: segments that lead out of it are refused, however they are written.
    """
    path, _, query = raw.partition("?")
    names = path.split("/")[1:]
    branch = None
    if names[:1] == ["r"]:
        if len(names) < 5 or names[2] != "b":
            raise RefusedError(400, f"expected /r/<rollout>/b/<branch>/...; {HOW}", field="path")
        attempt, rest = "0", names[4:]
        if rest[0] == "a" and len(rest) > 2:
            attempt, rest = rest[1], rest[2:]
        branch, names = branch_id(decoded_id(names[1]), names[3], attempt), rest
    upstream = names[0] if names else ""
    below = "".join(f"/{name}" for name in names[1:])
    if _LEADS_OUT.search(below) is not None or "#" in raw:
        raise RefusedError(400, "a path has no dot segments and no fragment", field="path")
    return Target(branch, upstream, below, query)


def branch_id(rollout: str, branch: str, attempt: str) -> BranchId:
    """A branch from texts. Raises RefusedError (400)."""
    if not 0 < len(rollout) <= MAX_ID:
        raise RefusedError(400, f"a rollout's id has 1 to {MAX_ID} characters", field="rollout")
    return BranchId(rollout, _index(branch, "branch"), _index(attempt, "attempt"))


def _index(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) <= MAX_INDEX):
        raise RefusedError(400, f"expected a whole number from 0 to {MAX_INDEX}", field=field)
    return int(text)


def decoded_id(text: str) -> str:
    """A rollout's id from its percent-encoded form. Raises RefusedError (400)."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise RefusedError(400, "the rollout's id is not UTF-8", field="path") from None


def own_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of a request by lower-case name. Raises RefusedError (400) if they contradict each other."""
    found: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if lower in HEADERS and found.setdefault(lower, value) != value:
            raise RefusedError(400, f"the header {name} stands there twice, and says different things", field="headers")
        found[lower] = value
    if "transfer-encoding" in found and "content-length" in found:
        raise RefusedError(400, "a body has one length: Transfer-Encoding or Content-Length", field="headers")
    return found


def identity_of(target: Target, headers: Mapping[str, str], caller: Caller) -> BranchId | None:
    """The branch of a request: the first of path, headers and token that names one. Raises RefusedError (400)."""
    if target.branch is not None:
        return target.branch
    rollout = headers.get("x-braid-rollout")
    if rollout is not None:
        branch, attempt = headers.get("x-braid-branch", "0"), headers.get("x-braid-attempt", "0")
        return branch_id(decoded_id(rollout), branch, attempt)
    if caller.rollout is not None and caller.branch is not None:
        return BranchId(caller.rollout, caller.branch, _index(headers.get("x-braid-attempt", "0"), "attempt"))
    return None
