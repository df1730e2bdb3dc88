"""Assemble streams: the response that the same API would have returned without streaming, or the reason why there is
none.

A stream counts only if its protocol marked its end: one that merely stops is incomplete, however much of it arrived.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agents.capture.event_stream import DONE
from agents.capture.protocol import Protocol
from agents.importers.traces.fields import array_in, object_in, text_in
from schemas.jsontext import parse


class Assembled(NamedTuple):
    """A response."""

    response: dict[str, Any] | None
    """As the API returns it without streaming; None if nothing arrived."""
    is_whole: bool
    """Whether the protocol marked the end of the stream."""
    error: dict[str, Any] | None = None
    """An error sent within the stream."""


def assemble(protocol: Protocol, events: Iterable[Any]) -> Assembled:
    """Put the events of a stream together."""
    if protocol == "anthropic-messages":
        return _messages(events)
    if protocol == "openai-responses":
        return _responses(events)
    return _chunks(events)


def _error_of(event: Mapping[str, Any]) -> dict[str, Any] | None:
    error = event.get("error")
    if isinstance(error, dict):
        return error
    return {"message": error} if isinstance(error, str) and error else None


# -- Anthropic -------------------------------------------------------------------------------------------------------------


def _messages(events: Iterable[Any]) -> Assembled:
    message: dict[str, Any] | None = None
    blocks: dict[int, dict[str, Any]] = {}
    whole = False
    for event in events:
        if not isinstance(event, dict):
            continue
        kind = event.get("type")
        if kind == "error":
            return Assembled(_with_blocks(message, blocks), False, _error_of(event) or {"message": "error"})
        if kind == "message_start":
            message = dict(object_in(event, "message"))
        elif kind == "content_block_start":
            blocks[_place(event)] = dict(object_in(event, "content_block"))
        elif kind == "content_block_delta":
            _add_delta(blocks.setdefault(_place(event), {}), object_in(event, "delta"))
        elif kind == "message_delta" and message is not None:
            message |= object_in(event, "delta")
            message |= {name: event[name] for name in ("context_management",) if name in event}
            message["usage"] = {**object_in(message, "usage"), **_known(object_in(event, "usage"))}
        elif kind == "message_stop":
            whole = True
    return Assembled(_with_blocks(message, blocks), whole and message is not None)


def _place(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


def _known(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in usage.items() if value is not None}


_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def _add_delta(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    kind = text_in(delta, "type") or ""
    if kind == "input_json_delta":
        block["partial_json"] = (text_in(block, "partial_json") or "") + str(delta.get("partial_json") or "")
    elif kind == "citations_delta":
        block["citations"] = [*array_in(block, "citations"), delta.get("citation")]
    elif kind in _GROWING:
        name = _GROWING[kind]
        block[name] = (text_in(block, name) or "") + str(delta.get(name) or "")


def _with_blocks(message: dict[str, Any] | None, blocks: Mapping[int, dict[str, Any]]) -> dict[str, Any] | None:
    if message is None:
        return None
    return message | {"content": [_finished(blocks[place]) for place in sorted(blocks)]}


def _finished(block: dict[str, Any]) -> dict[str, Any]:
    """A block with its input parsed; the raw text if it is not JSON."""
    given = block.get("partial_json")
    if isinstance(given, str):  # keep any other value that a block already has there
        del block["partial_json"]
    if isinstance(given, str) and given:
        try:
            block["input"] = parse(given)
        except ValueError:
            block["input"] = given
    return block


# -- OpenAI responses ------------------------------------------------------------------------------------------------------


def _responses(events: Iterable[Any]) -> Assembled:
    response: dict[str, Any] | None = None
    items: dict[int, Any] = {}
    whole = False
    for event in events:
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "error":
            return Assembled(response, False, _error_of(event) or {"message": str(event.get("message") or "error")})
        if kind == "response.output_item.done":
            place = event.get("output_index")
            items[place if isinstance(place, int) else len(items)] = event.get("item")
        elif isinstance(kind, str) and isinstance(event.get("response"), dict):
            response = event["response"]
            if kind == "response.failed":
                return Assembled(response, False, _error_of(response) or {"message": "the response failed"})
            whole = whole or kind in ("response.completed", "response.incomplete", "response.done")
    if response is not None and not array_in(response, "output"):
        response = response | {"output": [items[place] for place in sorted(items)]}
    return Assembled(response, whole)


# -- OpenAI chat completions and completions -------------------------------------------------------------------------------


def _chunks(events: Iterable[Any]) -> Assembled:
    head: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    done = False
    for event in events:
        if event == DONE:
            done = True
        if not isinstance(event, dict):
            continue
        error = _error_of(event)
        if error is not None:
            return Assembled(_completion(head, choices), False, error)
        if not head or event.get("usage") is not None or not event.get("choices"):
            head |= {name: value for name, value in event.items() if name != "choices" and value is not None}
        for choice in array_in(event, "choices"):
            if isinstance(choice, dict):
                _add_choice(choices.setdefault(_place(choice), {}), choice)
    ended = bool(choices) and all(choice.get("finish_reason") for choice in choices.values())
    return Assembled(_completion(head, choices), bool(choices) and (done or ended))


def _completion(head: dict[str, Any], choices: Mapping[int, dict[str, Any]]) -> dict[str, Any] | None:
    if not head and not choices:
        return None
    kind = str(head.get("object") or "").removesuffix(".chunk")
    made = [{"index": place, **_choice(choices[place])} for place in sorted(choices)]
    return head | ({"object": kind} if kind else {}) | {"choices": made}


def _add_choice(made: dict[str, Any], choice: Mapping[str, Any]) -> None:
    _add_tokens(made, choice)
    delta = choice.get("delta")
    if isinstance(delta, dict):
        _grow(made.setdefault("message", {}), delta)
        if not choice.get("finish_reason"):
            return
    if isinstance(choice.get("text"), str):
        made["text"] = made.get("text", "") + choice["text"]
    made |= {
        name: value
        for name, value in choice.items()
        if name not in ("index", "delta", "text", "logprobs", "token_ids") and value is not None
    }


def _add_tokens(made: dict[str, Any], choice: Mapping[str, Any]) -> None:
    """Add the ids of a chunk, and its log-probabilities: lists that grow."""
    ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
    if isinstance(ids, list):
        made.setdefault("token_ids", []).extend(ids)
    if isinstance(choice.get("prompt_token_ids"), list):
        made["prompt_token_ids"] = choice["prompt_token_ids"]
    for name in ("content", "token_logprobs"):
        if isinstance(logprobs, dict) and isinstance(logprobs.get(name), list):
            made.setdefault("logprobs", {}).setdefault(name, []).extend(logprobs[name])


class _Text:
    """A text that grows piece by piece: joined once, however many there are."""

    __slots__ = ("pieces",)

    def __init__(self, *pieces: str) -> None:
        self.pieces = [*pieces]


def _join_texts(message: Any) -> None:
    for name, value in message.items() if isinstance(message, dict) else ():
        if isinstance(value, _Text):
            message[name] = "".join(value.pieces)


def _grow(made: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta to a message: texts and lists grow, calls grow by their index, anything else is replaced."""
    for name, value in delta.items():
        known = made.get(name)
        if isinstance(known, _Text) and isinstance(value, str):
            known.pieces.append(value)
        elif name == "tool_calls":  # SGLang begins with null
            calls = made[name] = array_in(made, name)
            for number, call in enumerate(array_in(delta, name)):
                if isinstance(call, dict):
                    _grow_call(_call_at(calls, call, number), call)
        elif name == "function_call":
            made[name] = object_in(made, name)
            _grow_call(made[name], object_in(delta, name))
        elif value is None:
            made.setdefault(name, None)
        elif isinstance(value, str) and name != "role" and isinstance(known, str | None):
            made[name] = _Text(known, value) if known else value
        elif isinstance(value, list) and isinstance(made.get(name), list):
            made[name] = [*made[name], *value]
        else:
            made[name] = value


def _call_at(calls: list[dict[str, Any]], call: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The call that a piece belongs to: the last one with its index, unless the piece has another id. Some servers
    number every call 0.
    """
    index = call.get("index")
    place = index if isinstance(index, int) else number
    known = next((each for each in reversed(calls) if each["index"] == place), None)
    if known is None or (call.get("id") and known.get("id") and call["id"] != known["id"]):
        known = {"index": place}
        calls.append(known)
    return known


def _grow_call(made: dict[str, Any], call: Mapping[str, Any]) -> None:
    for name, value in call.items():
        if name == "index":
            continue
        if isinstance(value, dict):
            inner = made[name] = object_in(made, name)
            for key, text in value.items():
                if key == "arguments":
                    _add_arguments(inner, text)
                elif text is not None:
                    inner[key] = text
        elif name == "arguments":
            _add_arguments(made, value)
        elif value is not None:
            made[name] = value


def _add_arguments(made: dict[str, Any], piece: Any) -> None:
    """Append a piece of text to the arguments; some servers send the whole value at once."""
    known = made.get("arguments")
    if isinstance(piece, str) and isinstance(known, str | None):
        made["arguments"] = (known or "") + piece
    elif piece is not None:
        made["arguments"] = piece


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.get("message")
    _join_texts(message)
    if message is not None and isinstance(message.get("tool_calls"), list):
        calls = sorted(message["tool_calls"], key=lambda call: call["index"])
        message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    return choice


def finish_of(protocol: Protocol, response: Mapping[str, Any]) -> str | None:
    """Why a response ended, in the provider's terms."""
    if protocol == "anthropic-messages":
        return text_in(response, "stop_reason")
    if protocol == "openai-responses":
        return text_in(object_in(response, "incomplete_details"), "reason") or text_in(response, "status")
    choices = array_in(response, "choices")
    return text_in(choices[0], "finish_reason") if choices and isinstance(choices[0], dict) else None
