"""A model call from one span of any dialect: its messages, responses and facts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.importers.otlp.spans import Span, trouble_of
from agents.importers.traces.call_facts import CallFacts, CallTrouble
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.traced_end import call_trouble
from agents.importers.traces.usage import NONE, Usage

REDACTED = "__REDACTED__"
"""Placeholder for texts that an instrumentation was configured to hide."""


class ModelSpan(NamedTuple):
    """A model call as one span describes it."""

    span: Span
    messages: list[Spoken] | None
    """The request messages; None if the span does not have them."""
    choices: list[Spoken]
    """The responses; several if the request asked for several."""
    facts: CallFacts
    response_id: str | None = None

    @property
    def is_recorded(self) -> bool:
        """Return whether request and response are both known."""
        return self.messages is not None and (bool(self.choices) or self.facts.error is not None)

    @property
    def richness(self) -> tuple[int, int, int, int]:
        """Return a measure of the amount of data: of several spans for one call the richest is read."""
        sent = self.messages or []
        said = sum(len(each.text) + len(each.reasoning or "") + len(each.calls) for each in self.choices)
        return int(self.is_recorded), len(sent), said, sum(len(each.text) for each in sent)


def known(messages: list[Spoken] | None) -> list[Spoken] | None:
    """Return the messages, or None if there are none or one was hidden."""
    if not messages or any(each.text == REDACTED for each in messages):
        return None
    return messages


def trouble(span: Span) -> CallTrouble | None:
    """Return the reason why a call failed, or None."""
    found = trouble_of(span)
    if found is None:
        return None
    status = span.attributes.get("http.response.status_code")
    return call_trouble(found[0], found[1], status if isinstance(status, int) and status >= 400 else None)


def source_of(span: Span, is_read: Mapping[str, Any] | None = None, read: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return all data of a span that has no other place."""
    left = {
        key: value for key, value in span.attributes.items() if not key.startswith(read) and key not in (is_read or {})
    }
    found: dict[str, Any] = {"span": span.name, "scope": span.scope, "attributes": left, **span.more}
    return {name: value for name, value in found.items() if value not in ("", None, {}, [])}


def filled(usage: Usage, other: Usage) -> Usage:
    """Merge the counts of two spans for one call. The second fills gaps in the first."""
    return Usage(*(mine if mine is not None else theirs for mine, theirs in zip(usage, other, strict=True)))  # type: ignore[arg-type]


def merged_facts(facts: CallFacts, other: CallFacts) -> CallFacts:
    """Merge the facts of two spans for one call."""
    return CallFacts(
        model=facts.model or other.model,
        sampling={
            **(other.sampling or {}),
            **{name: value for name, value in (facts.sampling or {}).items() if value is not None},
        },
        tools=facts.tools if facts.tools is not None else other.tools,
        finish=facts.finish or other.finish,
        usage=filled(facts.usage, other.usage) if facts.usage != NONE else other.usage,
        error=facts.error or other.error,
        started_ms=_least(facts.started_ms, other.started_ms),
        ended_ms=max((each for each in (facts.ended_ms, other.ended_ms) if each is not None), default=None),
        source={**(facts.source or {}), "beside": [*(facts.source or {}).get("beside", []), dict(other.source or {})]},
    )


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)
