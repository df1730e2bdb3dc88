"""The kept part of an event: its digest is that of its canonical JSON, whatever road leads to it."""

import json
from hashlib import sha256

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.evidence.canonical import canonical_bytes
from agents.summarize.event_reader import is_provider_trouble, keep, keep_slice
from agents.summarize.pieces import Answer, Call, Failure, Piece, Result, Said
from schemas.events import AgentEvent, fields_of
from schemas.jsontext import parse_object
from tests.examples import shares

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def event_digest(event: AgentEvent, data: dict[str, object]) -> bytes:
    """By the definition: SHA-256 of the canonical JSON of the raw event."""
    return sha256(
        canonical_bytes(
            {
                "channel": event.channel,
                "data": data,
                "event": event.event,
                "parent_trace_id": event.parent_trace_id,
                "timestamp_ms": event.timestamp_ms,
                "trace_id": event.trace_id,
            },
            big_integers="exact",
        )
    ).digest()


def piece(*events: AgentEvent) -> Piece:
    return keep_slice([fields_of(event) for event in events], 0, 0, redacting=False)


@given(data=st.dictionaries(TEXT, VALUES, max_size=4), ascii_only=st.booleans(), trace=TEXT)
@example(data={"a": 1.0, "b": 10**20, "\U0001f600": 1, "￮": 2}, ascii_only=True, trace='"')
@settings(max_examples=shares(4), deadline=None)
def test_the_quick_digest_is_the_exact_one(data: dict[str, object], ascii_only: bool, trace: str) -> None:
    """Fractions, long integers and characters beyond 16 bits take the exact road; the rest gives the same bytes."""
    text = json.dumps(data, ensure_ascii=ascii_only)
    event = AgentEvent(trace_id=trace, channel="c", event="x", data=text, timestamp_ms=len(text))
    assert piece(event).digests == event_digest(event, parse_object(text))


@given(
    delta=st.text(max_size=8),
    step=st.integers(-1, 10**17) | st.just(True),
    spaced=st.booleans(),
    ascii_only=st.booleans(),
)
@example(delta="\x7f\u2028\U0001f600", step=10**15, spaced=False, ascii_only=False)
@example(delta="", step=0, spaced=False, ascii_only=False)
@settings(max_examples=shares(4), deadline=None)
def test_a_token_that_is_not_parsed_is_kept_as_one_that_is(
    delta: str, step: int, spaced: bool, ascii_only: bool
) -> None:
    """A text that is its own canonical JSON takes the short road; its digest and body are those of the long one."""
    delta = delta.encode(errors="replace").decode()
    data = {"delta": delta, "step": step}
    text = json.dumps(data, ensure_ascii=ascii_only, separators=None if spaced else (",", ":"))
    event = AgentEvent(trace_id="t", channel="thinking", event="thinking_delta", data=text, timestamp_ms=7)
    assert piece(event).digests == event_digest(event, data)
    known = step if type(step) is int and 0 <= step < 2**53 else None
    said = keep(event, redacting=True)
    assert (said.text, said.step) == (delta, known) if isinstance(said, Said) else (said, delta) == (None, "")


def kept(kind: str, data: dict[str, object]) -> object:
    return keep(AgentEvent(channel="c", event=kind, data=json.dumps(data)), redacting=True)


def test_secrets_are_removed_before_anything_is_cut() -> None:
    """The text that is kept has no key in it, the digest is that of the raw text."""
    key = "AKIA" + "Q7ZT4M2KXW9PL3VD"
    result = kept("tool_result", {"output": f"key {key}\n" + "line\n" * 20_000})
    assert isinstance(result, Result)
    assert result.output is not None
    assert key not in result.output.head + (result.output.tail or "")
    assert len(result.output.head) < 20_000
    call = kept("tool_call", {"toolName": "run", "args": {"env": f"AWS_KEY={key}"}})
    assert isinstance(call, Call)
    assert key not in call.arguments


def test_an_answer_may_be_empty_and_an_error_may_be_the_providers() -> None:
    """An empty answer is an answer; an overloaded provider says nothing about the agent."""
    answer = kept("final_answer", {"answer": ""})
    assert isinstance(answer, Answer)
    assert answer.text == ""
    overloaded = kept("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert isinstance(overloaded, Failure)
    assert (overloaded.message, overloaded.provider) == ("Overloaded", True)
    own = kept("error", {"error": "max steps reached (25)"})
    assert isinstance(own, Failure)
    assert (own.message, own.provider) == ("max steps reached (25)", False)


def test_numbers_in_an_error_count_only_as_words() -> None:
    """A 529 is trouble of the provider, line 5290 is not."""
    assert is_provider_trouble("HTTP 529: try again")
    assert not is_provider_trouble("assertion failed at line 5290 of 1502")
