"""Roles: which client may write and read what. Pure: a header in, a caller out; a fact and a caller in, a refusal or
None out.

The role is checked for the fact to write, not for the route, so that it cannot be bypassed: an agent cannot write a
verdict about itself.
"""

from base64 import b64decode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from agents.facts.fact import Fact, rollout_of
from schemas.base import Record
from schemas.captures import Capture
from schemas.events import AgentEvents
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from streams.cluster.config import ConfigError, HttpConfig, Role, Token

NEEDED: dict[type[Record], tuple[Role, ...]] = {
    Lifecycle: ("operator",),
    AgentEvents: ("agent", "operator"),
    Capture: ("agent", "operator"),
    BuildVerdict: ("verifier",),
    VisualVerdict: ("verifier",),
    CheckVerdict: ("verifier",),
    JudgeVote: ("verifier",),
}
"""The roles, one of which is needed to write a record. No client may write records that are not listed."""


class Caller(NamedTuple):
    """The sender of a request."""

    roles: frozenset[Role]
    rollout: str | None = None
    """The only rollout it may write to."""
    branch: int | None = None
    """The only branch it may write to."""

    def refusal(self, record: type[Record], rollout_id: str | None, branch: int | None) -> str | None:
        """Why this caller may not write such a record; None if it may. `rollout_id` is None if it is not known yet."""
        needed = NEEDED.get(record, ())
        if self.roles.isdisjoint(needed):
            has = ", ".join(sorted(self.roles)) or "none"
            return f"this needs the role {' or '.join(needed) or 'of a worker'}; the token's roles: {has}"
        if self.rollout is not None and rollout_id is not None and rollout_id != self.rollout:
            return "this token is bound to another rollout"
        if self.branch is not None and branch != self.branch:
            return "this token is bound to one branch, and this is not about that branch"
        return None

    def fact_refusal(self, fact: Fact) -> str | None:
        """Why this caller may not write a fact. The snapshot that is tested is named by a runner, not by its agent."""
        if isinstance(fact, AgentEvents) and fact.workspace is not None and "operator" not in self.roles:
            return "workspace needs the role operator: an agent does not choose which snapshot is tested; leave it out"
        return self.refusal(type(fact), rollout_of(fact), getattr(fact, "branch_index", None))

    def read_refusal(self, needed: tuple[Role, ...], rollout_id: str | None) -> str | None:
        """Why this caller may not read something; None if it may. `rollout_id` is None for data about several rollouts."""
        if self.roles.isdisjoint(needed):
            has = ", ".join(sorted(self.roles)) or "none"
            return f"this needs the role {' or '.join(needed)}; the token's roles: {has}"
        if self.branch is not None:
            return "this token is bound to one branch: it reads no pages"
        if self.rollout is not None and rollout_id is not None and rollout_id != self.rollout:
            return "this token is bound to another rollout"
        return None


EVERYBODY = Caller(frozenset({"agent", "verifier", "operator", "viewer"}))
"""The identity of every client of a server without tokens: it listens on loopback only."""


class Doors:
    """The configured tokens. Only their digests are kept, and every one is compared, whichever matches."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._callers: dict[bytes, Caller] = {}
        for number, token in enumerate(tokens):
            secret = token.token.get_secret_value()
            digest = sha256(secret.encode()).digest()
            if not secret.strip():
                raise ConfigError(f"gateway.tokens.{number}: the token is empty; give it a long random text")
            if digest in self._callers:
                raise ConfigError(f"gateway.tokens.{number}: the token is there twice; give each its own")
            self._callers[digest] = Caller(frozenset(token.roles), token.rollout, token.branch)

    @property
    def are_open(self) -> bool:
        """Whether no tokens are configured."""
        return not self._callers

    def caller(self, authorization: Sequence[bytes], *, browsers: bool = False) -> Caller | None:
        """The client of these Authorization headers; None for an unknown one.

        Browsers ask people for a name and a password: the password of basic authentication is accepted as a token, too.
        """
        if self.are_open:
            return EVERYBODY
        if len(authorization) != 1:
            return None
        scheme, _, secret = authorization[0].strip().partition(b" ")
        if scheme.lower() == b"basic" and browsers:
            return self.known(_password(secret))
        return self.known(secret) if scheme.lower() == b"bearer" else None

    def known(self, secret: bytes) -> Caller | None:
        """The client of this token; None for no token of ours."""
        given = sha256(secret.strip()).digest()
        found = [caller for digest, caller in self._callers.items() if compare_digest(digest, given)]
        return found[0] if found else None


def _password(credentials: bytes) -> bytes:
    """The password of basic authentication; empty for any other scheme."""
    try:
        return b64decode(credentials.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""


def check_bind(config: HttpConfig, tokens: Sequence[Token], name: str = "gateway") -> None:
    """Raises ConfigError for an address that others can reach if there are no tokens."""
    if not tokens and not is_loopback(config.host):
        raise ConfigError(
            f"{name}: {config.host or 'every address'} can be reached by others, and no tokens are configured; "
            "set gateway.tokens (BRAID_GATEWAY__TOKENS), or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether a name or address stays on this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@lru_cache(maxsize=64)
def browser_refusal(host: str | None, origin: str | None) -> str | None:
    """Why a request to an open server may come from a foreign page; None if it does not.

    A page can make a browser on this machine post to loopback: then the Origin is the page's. With a name that it points
    at loopback the Origin matches, but the Host is that name.
    """
    name = _name(f"//{host}") if host else None
    if name is None or not is_loopback(name):
        return "without tokens this server answers only to loopback names such as localhost (the Host header)"
    if origin is not None and _host_and_port(origin) != (host or "").lower():
        return "without tokens this server takes no requests from pages of other origins (the Origin header)"
    return None


def _host_and_port(url: str) -> str | None:
    try:
        return urlsplit(url).netloc.lower() or None
    except ValueError:
        return None


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
