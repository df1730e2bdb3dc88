"""The fields of a `model_call` other than its messages: model, sampling, tools, usage, error and times, each with
its type.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agents.evidence.canonical import CanonicalError, canonical_bytes, digest
from agents.importers.traces.content import fitting_source, too_large
from agents.importers.traces.usage import NONE, Usage
from schemas.base import MAX_EXACT
from schemas.jsontext import compact

LARGE = 1e300
"""A larger number is not a sampling option and may not fit into a float."""

_REALS = ("temperature", "top_p")
_WHOLES = ("top_k", "seed")


class CallTrouble(NamedTuple):
    """The reason why a call has no response."""

    kind: str
    """rate_limited, http_5xx, timeout, ..."""
    message: str = ""


class CallFacts(NamedTuple):
    """The known facts about a call; None for facts that the producer does not provide."""

    model: str | None = None
    sampling: Mapping[str, Any] | None = None
    """temperature, top_p, top_k, seed, max_tokens, stop; anything else goes to `source`."""
    tools: Sequence[Any] | None = None
    finish: str | None = None
    usage: Usage = NONE
    error: CallTrouble | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    tokens: Mapping[str, Any] | None = None
    """The ids and log-probabilities that the engine returned."""
    policy_version: str | None = None
    source: Mapping[str, Any] | None = None
    """Fields without another place."""


class Offers:
    """The tool lists of a branch. Each is written once and then referenced by its digest."""

    def __init__(self) -> None:
        self._written: set[str] = set()

    def fields(self, tools: Sequence[Any] | None) -> dict[str, Any]:
        """Return the fields of a call that is offered these tools."""
        if tools is None:
            return {}
        offered = list(tools)
        try:
            found = digest(canonical_bytes(offered, big_integers="exact"))
        except CanonicalError:
            return {}
        if found in self._written or too_large(compact(offered)) is not None:
            return {"tools_digest": found}
        self._written.add(found)
        return {"tools": offered}


def call_fields(facts: CallFacts, offers: Offers, *, answered: bool) -> dict[str, Any]:
    """Return the fields of a call's event; unknown fields are None."""
    sampling, other = _sampling(facts.sampling or {})
    source = {**other, **(facts.source or {})}
    if answered and facts.error is not None:
        source["error"] = facts.error._asdict()
    latency = None
    if facts.started_ms is not None and facts.ended_ms is not None:
        latency = max(0, facts.ended_ms - facts.started_ms)
    return {
        "model": facts.model,
        "sampling": sampling or None,
        **offers.fields(facts.tools),
        "policy_version": facts.policy_version,
        "tokens": facts.tokens if answered else None,
        "finish_reason": facts.finish,
        "usage": _counts(facts.usage) or None,
        "error": None if answered or facts.error is None else facts.error._asdict(),
        "started_ms": facts.started_ms,
        "latency_ms": latency,
        "source": fitting_source(source) or None,
    }


def _counts(usage: Usage) -> dict[str, int]:
    known = {"input": usage.input, "output": usage.output, "cached": usage.cached, "reasoning": usage.reasoning}
    return {name: count for name, count in known.items() if count is not None and 0 <= count <= MAX_EXACT}


def _sampling(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sampling options that the event has fields for, and the rest."""
    fields: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        fits = (
            (name in _REALS and _is_real(value))
            or (name in _WHOLES and _is_whole(value, -(2**63), 2**63 - 1))
            or (name == "max_tokens" and _is_whole(value, 0, MAX_EXACT))
            or (name == "stop" and _is_stop(value))
        )
        (fields if fits else other)[name] = value
    return fields, other


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGE < value < LARGE


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_stop(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))
