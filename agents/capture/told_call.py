"""A captured model call, read for the conversation tracker: the messages that were sent, and the response or the error."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agents.capture.assembly import finish_of
from agents.capture.exactness import ambiguous, in_block_order, unseen
from agents.capture.protocol import PROTOCOLS, Protocol
from agents.capture.request_delta import Expander, Place, Whole
from agents.capture.response_items import joined, read_item
from agents.importers.line_error import LineError
from agents.importers.traces.call_facts import CallFacts, CallTrouble
from agents.importers.traces.content import refer
from agents.importers.traces.fields import array_in, object_in, text_in
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.spoken_chat import Unread, read_messages, spoken_of
from agents.importers.traces.traced_end import call_trouble, error_words
from agents.importers.traces.tracker import TracedCall
from agents.importers.traces.usage import NONE, read_usage
from agents.models.engine_tokens import tokens_of
from schemas.base import MAX_EXACT
from schemas.jsontext import compact

_SAMPLING = ("temperature", "top_p", "top_k", "seed", "stop")
_MAX_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_ELSEWHERE = ("previous_response_id", "conversation", "prompt")
"""Fields of the Responses API that refer to messages outside the request."""


class ToldCall(NamedTuple):
    """A call."""

    calls: tuple[TracedCall, ...]
    """One for each choice; one for a call that failed."""
    response_id: str | None
    """The provider's id of the response."""


class CallReader:
    """Reads the calls of one branch, in the order in which they were captured."""

    def __init__(self) -> None:
        self._expander = Expander()
        self._stored: dict[str, tuple[Spoken, ...]] = {}
        """The messages that a later request may continue, by the response id that it names."""

    def read(self, body: Mapping[str, Any], capture_id: str) -> ToldCall:
        """Return the call of a capture's body. Raises LineError, UnknownBeginningError."""
        protocol = body.get("protocol")
        if protocol not in PROTOCOLS:
            raise LineError("protocol", f"expected one of {', '.join(PROTOCOLS)}")
        asked = self._expander.expand(_delta(body, protocol))
        messages = self._sent(protocol, asked)
        response = body.get("response")
        differs = unseen(protocol, asked, messages, response if isinstance(response, dict) else {})
        messages += [] if differs is None else [differs]
        messages += [ambiguous()] if body.get("repeated_keys") is True else []
        error = _trouble(body)
        choices: Sequence[Spoken] = ()
        if error is None and isinstance(response, dict):
            choices = _choices(protocol, response)
        if error is None and not choices:
            error = CallTrouble("empty", "the response says nothing")
        facts = _facts(body, protocol, asked, response if isinstance(response, dict) else {}, error, capture_id)
        call = TracedCall(tuple(messages), choices[0] if choices else None, capture_id, facts=facts)
        told = [call] + [
            call._replace(response=each, facts=facts._replace(usage=NONE, tokens=None)) for each in choices[1:]
        ]  # the request was sent once: its usage counts once
        response_id = text_in(response, "id") if isinstance(response, dict) else None
        if response_id is not None and protocol == "openai-responses" and choices:
            self._stored[response_id] = (*messages, choices[0])
        return ToldCall(tuple(told), response_id)

    def _sent(self, protocol: Protocol, asked: Whole) -> list[Spoken]:
        fields = asked.fields
        if protocol == "openai-completions":
            return _prompts(fields.get("prompt", [each.item for each in asked.history or ()]))
        if protocol == "openai-responses":
            return self._items(asked)
        first = _system(fields.get("system")) if protocol == "anthropic-messages" else []
        reader = _blocks if protocol == "anthropic-messages" else spoken_of
        return [*first, *(spoken for place in asked.history or () for spoken in _read(place, reader))]

    def _items(self, asked: Whole) -> list[Spoken]:
        """The messages of a request of the Responses API. Instructions are those of this request, never of an earlier
        one.
        """
        fields = asked.fields
        found: list[Spoken] = []
        for name in _ELSEWHERE:
            if fields.get(name):
                earlier = self._stored.get(str(fields[name])) if name == "previous_response_id" else None
                found += _elsewhere(fields[name]) if earlier is None else _without_prompt(earlier)
        if asked.history is not None:
            found += [spoken for place in asked.history for spoken in _read(place, read_item)]
        elif isinstance(fields.get("input"), str):
            found.append(Spoken("user", fields["input"]))
        return [*_system(fields.get("instructions")), *joined(found)]


def _delta(body: Mapping[str, Any], protocol: Protocol) -> Mapping[str, Any]:
    """The request as a difference; a whole request is the difference to an empty one."""
    request = body.get("request")
    if not isinstance(request, dict):
        raise LineError("request", "expected an object")
    if body.get("is_delta") is True:
        return request
    name = "messages" if protocol in ("openai-chat", "anthropic-messages") else "input"
    items = request.get(name)
    if not isinstance(items, list):
        return {"fields": request}
    fields = {key: value for key, value in request.items() if key != name}
    return {"fields": fields, "history": name, "keep": 0, "add": items}


def _read(place: Place, reader: Callable[[Any], list[Spoken]]) -> tuple[Spoken, ...]:
    """The messages of an item, cached; one that cannot be read becomes a reference, so that no row is made of it."""
    if place.reading is None:
        try:
            place.reading = tuple(reader(place.item))
        except LineError:
            place.reading = (_reference(place.item),)
    found: tuple[Spoken, ...] = place.reading
    return found


def _blocks(message: Any) -> list[Spoken]:
    """The messages of an Anthropic message. Raises LineError."""
    return in_block_order(spoken_of(message), message)


def _reference(value: Any) -> Spoken:
    return Spoken("user", (refer("other", "application/json", compact(value).encode()),))


def _elsewhere(name: Any) -> list[Spoken]:
    return [_reference({"elsewhere": name})]


def _without_prompt(messages: Sequence[Spoken]) -> Sequence[Spoken]:
    return messages[1:] if messages and messages[0].role == "system" else messages


def _system(given: Any) -> list[Spoken]:
    if not given:
        return []
    return read_messages({"role": "system", "content": given}, "system", Unread())


def _prompts(prompt: Any) -> list[Spoken]:
    """A prompt of text completions. Token ids are not text, and several prompts are not a conversation."""
    given = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    return [Spoken("user", given) if isinstance(given, str) else _reference(given)]


# -- responses -------------------------------------------------------------------------------------------------------------


def _choices(protocol: Protocol, response: Mapping[str, Any]) -> list[Spoken]:
    if protocol == "openai-responses":
        items = [spoken for item in array_in(response, "output") for spoken in read_item(item)]
        return list(joined(items))
    if protocol == "anthropic-messages":
        told: list[Any] = [{"role": "assistant", "content": response.get("content")}]
    elif protocol == "openai-completions":
        told = [{"role": "assistant", "content": each.get("text")} for each in _dicts(response, "choices")]
    else:
        told = [{**object_in(each, "message"), "role": "assistant"} for each in _dicts(response, "choices")]
    reader = _blocks if protocol == "anthropic-messages" else spoken_of
    found = [spoken for each in told for spoken in reader(each) if spoken.role == "assistant"]
    return [each for each in found if each.says_something]


def _dicts(value: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [each for each in array_in(value, name) if isinstance(each, dict)]


def _trouble(body: Mapping[str, Any]) -> CallTrouble | None:
    """Why a call has no response."""
    status, error = body.get("status"), body.get("error")
    code = status if isinstance(status, int) and not isinstance(status, bool) else None
    if isinstance(error, dict):
        words = error_words(text_in(error, "message") or "")
        kind = text_in(error, "kind")
        if kind is not None:
            return CallTrouble(kind, words)
        return call_trouble(words, text_in(error, "type", "code"), code)
    if code is not None and not 200 <= code < 300:
        return call_trouble("", None, code)
    return None if isinstance(body.get("response"), dict) else CallTrouble("empty", "there is no response")


def _facts(
    body: Mapping[str, Any], protocol: Protocol, asked: Whole, response: Mapping[str, Any], error: CallTrouble | None,
    capture_id: str,
) -> CallFacts:  # fmt: skip
    fields = asked.fields
    sampling = {name: fields.get(name) for name in _SAMPLING}
    sampling["stop"] = fields.get("stop", fields.get("stop_sequences"))
    sampling["max_tokens"] = next((fields[name] for name in _MAX_TOKENS if fields.get(name) is not None), None)
    started, latency = _millis(body.get("started_ms")), _millis(body.get("latency_ms"))
    tools = fields.get("tools")
    source: dict[str, Any] = {"capture": capture_id, "protocol": protocol}
    source |= {name: body[name] for name in ("status", "request_sha256", "first_byte_ms") if body.get(name) is not None}
    return CallFacts(
        model=text_in(response, "model") or text_in(fields, "model"),
        sampling=sampling,
        tools=tools if isinstance(tools, list) else None,
        finish=finish_of(protocol, response),
        usage=read_usage(response.get("usage")),
        error=error,
        started_ms=started,
        ended_ms=None if started is None or latency is None else started + latency,
        source=source,
        tokens=_tokens(body, response) if protocol in ("openai-chat", "openai-completions") and error is None else None,
        policy_version=text_in(response, "policy_version", "weight_version") or text_in(body, "policy_version"),
    )


def _tokens(body: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tokens of a call: in a separate field, or in the response."""
    given = body.get("tokens")
    return given if isinstance(given, dict) else tokens_of(response)


def _millis(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_EXACT // 2 else None
