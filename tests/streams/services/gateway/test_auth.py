"""Roles, decided without a server."""

import pytest
from pydantic import SecretStr

from schemas.closures import Closure
from schemas.events import AgentEvents
from schemas.judging import JudgeVote
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.verdicts import BuildVerdict, CheckVerdict, VisualVerdict
from streams.cluster.config import ConfigError, GatewayConfig, Role, Token
from streams.services.web.auth import EVERYBODY, Caller, Doors, browser_refusal, check_bind

VERDICTS = (BuildVerdict, VisualVerdict, CheckVerdict, JudgeVote)


def caller(*roles: Role, rollout: str | None = None, branch: int | None = None) -> Caller:
    return Caller(frozenset(roles), rollout, branch)


def token(text: str, *roles: Role) -> Token:
    return Token(token=SecretStr(text), roles=roles)


@pytest.mark.parametrize("record", VERDICTS)
@pytest.mark.parametrize("roles", [("agent",), ("operator",), ("agent", "operator"), ()])
def test_only_a_verifier_writes_verdicts_and_votes(record: type, roles: tuple[Role, ...]) -> None:
    """Agents and operators may not, whatever else they may."""
    assert caller(*roles).refusal(record, "r", 0)
    assert caller("verifier").refusal(record, "r", 0) is None


def test_events_are_for_agents_and_operators() -> None:
    """A verifier that could write events could make the branch it judges."""
    assert caller("agent").refusal(AgentEvents, "r", 0) is None
    assert caller("operator").refusal(AgentEvents, "r", 0) is None
    assert caller("verifier").refusal(AgentEvents, "r", 0)


def test_rollouts_are_for_operators() -> None:
    """Agents do not say which verdicts are required."""
    assert caller("operator").refusal(Lifecycle, "r", None) is None
    assert caller("agent", "verifier").refusal(Lifecycle, "r", None)


def test_nobody_writes_decisions() -> None:
    """Closures are the worker's; no role at the gateway reaches them."""
    assert EVERYBODY.refusal(Closure, "r", None)


@pytest.mark.parametrize(("rollout", "branch", "may"), [("mine", 1, True), ("mine", 2, False), ("other", 1, False)])
def test_a_bound_token_is_good_for_its_branch_only(rollout: str, branch: int, may: bool) -> None:
    """Another branch, or another rollout, is refused."""
    bound = caller("agent", rollout="mine", branch=1)
    fact = AgentEvents(rollout_id=rollout, branch_index=branch, ended=True)
    assert (bound.fact_refusal(fact) is None) is may


def test_a_token_bound_to_a_branch_says_nothing_about_the_rollout() -> None:
    """A bound token does nothing that concerns all branches."""
    bound = caller("operator", "verifier", rollout="mine", branch=1)
    assert bound.fact_refusal(Lifecycle(opened=RolloutOpened(rollout_id="mine", task="t")))
    assert bound.fact_refusal(JudgeVote(vote_id="v", rollout_id="mine", a=1, b=2))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [b"secret-a"],
        [b"Basic secret-a"],
        [b"Bearer"],
        [b"Bearer secret-"],
        [b"Bearer secret-a ", b"Bearer secret-a"],
        [b"\xff\xfe"],
    ],
)
def test_anything_but_a_known_bearer_token_is_nobody(headers: list[bytes]) -> None:
    """Also a prefix of a token, another scheme, and two headers at once."""
    assert Doors([token("secret-a", "agent")]).caller(headers) is None


def test_a_token_gives_its_own_roles() -> None:
    """The scheme's spelling does not matter."""
    doors = Doors([token("secret-a", "agent"), token("secret-b", "verifier", "operator")])
    found = doors.caller([b"bearer secret-b"])
    assert found is not None
    assert found.roles == {"verifier", "operator"}


@pytest.mark.parametrize("texts", [["same", "same"], ["", "x"], ["  "]])
def test_empty_and_repeated_tokens_are_configuration_errors(texts: list[str]) -> None:
    """They would open the door to every client, or make it unclear who came."""
    with pytest.raises(ConfigError, match=r"gateway\.tokens\.\d"):
        Doors([token(text, "agent") for text in texts])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "example.com", "localhost.example.com"])
def test_an_address_that_others_reach_needs_tokens(host: str) -> None:
    """The error says what to do; with tokens it is fine."""
    with pytest.raises(ConfigError, match="BRAID_GATEWAY__TOKENS"):
        check_bind(GatewayConfig(host=host), ())
    check_bind(GatewayConfig(host=host), (token("t", "agent"),))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_loopback_needs_no_tokens(host: str) -> None:
    """Every user of the machine is trusted."""
    check_bind(GatewayConfig(host=host), ())


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:8790", None, True),
        ("localhost:8790", "http://localhost:8790", True),
        ("[::1]:8790", None, True),
        ("localhost:8790", "http://localhost:3000", False),
        ("localhost:8790", "https://evil.example", False),
        ("localhost:8790", "null", False),
        ("localhost:8790", "http://[bad", False),
        ("evil.example:8790", "http://evil.example:8790", False),
        ("evil.example", None, False),
        ("localhost.evil.example", None, False),
        (None, None, False),
        ("[bad", None, False),
    ],
)
def test_pages_of_others_cannot_use_an_open_gateway(host: str | None, origin: str | None, allowed: bool) -> None:
    """Neither by posting across origins nor with a name that they point at loopback."""
    assert (browser_refusal(host, origin) is None) is allowed
