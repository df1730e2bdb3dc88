"""Read the call of an llm run: its messages, responses and facts, for every wrapper."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.importers.langsmith.lc_messages import chat_message
from agents.importers.traces.call_facts import CallFacts
from agents.importers.traces.fields import array_in, millis, object_in, rest_of, text_in
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.spoken_chat import Unread, merged, read_messages
from agents.importers.traces.traced_end import call_trouble, error_words
from agents.importers.traces.usage import NONE, Usage, read_usage

Run = dict[str, Any]

_SAMPLING = ("temperature", "top_p", "top_k", "seed", "max_tokens", "stop")
_ASKED = ("model", "model_name", "messages", "tools", "system", "input", "instructions", *_SAMPLING)


class LlmCall(NamedTuple):
    """A model call."""

    messages: list[Spoken]
    """Empty if the run does not contain them."""
    choices: list[Spoken]
    facts: CallFacts


def read_llm(run: Run, unread: Unread) -> LlmCall:
    """Read the call of an llm run."""
    inputs, outputs = object_in(run, "inputs"), object_in(run, "outputs")
    place = f"run {run['id']}"
    error = error_of(run)
    told = [chat_message(each) for each in _sent(inputs)]
    said = [] if error is not None else _said(outputs)
    answers = [each for each in read_messages(said, f"{place} outputs", unread) if each.role == "assistant"]
    if isinstance(outputs.get("output"), list):  # items of one response
        answers = [whole] if (whole := merged(answers)) is not None else []
    facts = _facts(run, inputs, outputs)._replace(error=None if error is None else call_trouble(error))
    sent = read_messages(told, f"{place} inputs", unread)
    return LlmCall(sent, [each for each in answers if each.says_something], facts)


def _sent(inputs: Mapping[str, Any]) -> list[Any]:
    """Return the messages of a request."""
    system = inputs.get("system") or inputs.get("instructions")
    first = [{"role": "system", "content": system}] if system else []
    messages = inputs.get("messages")
    if isinstance(messages, list):
        is_batch = bool(messages) and isinstance(messages[0], list) and not _is_pair(messages[0])
        return [*first, *(messages[0] if is_batch else messages)]
    for name in ("prompts", "prompt", "input"):
        given = inputs.get(name)
        if isinstance(given, str):
            return [*first, {"role": "user", "content": given}]
        if isinstance(given, list) and given:
            return [*first, *(_item(each) for each in given)] if name != "prompts" else [*first, given[0]]
    return first


def _is_pair(value: list[Any]) -> bool:
    return len(value) == 2 and isinstance(value[0], str)


def _said(outputs: Mapping[str, Any]) -> list[Any]:
    """Return the responses. If there were several prompts, only those of the first count."""
    generations = outputs.get("generations")
    if isinstance(generations, list):
        first = generations[0] if generations and isinstance(generations[0], list) else generations
        return [
            chat_message(each["message"]) if each.get("message") else _text(each)
            for each in first
            if isinstance(each, dict)
        ]
    choices = array_in(outputs, "choices")
    if choices:
        return [each.get("message") or _text(each) for each in choices if isinstance(each, dict)]
    if outputs.get("role") or outputs.get("type") == "message":
        return [{"role": "assistant", **outputs}]
    return _said_plainly(outputs)


def _said_plainly(outputs: Mapping[str, Any]) -> list[Any]:
    """Return the response of a function that is marked as an llm: a message, a text, or the last of several
    messages.
    """
    message = outputs.get("message") or outputs.get("output")
    if isinstance(message, list):
        return [_item(each) for each in message]
    if isinstance(message, dict):
        return [chat_message(message)]
    if isinstance(message, str):
        return [{"role": "assistant", "content": message}]
    messages = array_in(outputs, "messages")
    return [chat_message(messages[-1])] if messages else []


def _text(generation: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": generation.get("text")}


def _item(item: Any) -> Any:
    """Convert an item of the Responses API to a chat message."""
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "function_call":
        return {
            "role": "assistant",
            "tool_calls": [{"id": item.get("call_id"), "name": item.get("name"), "arguments": item.get("arguments")}],
        }
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    if kind == "reasoning":
        return {"role": "assistant", "content": [item]}
    return chat_message(item)


def _facts(run: Run, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> CallFacts:
    extra = object_in(run, "extra")
    asked = {**{name: inputs[name] for name in inputs if name in _ASKED}, **object_in(extra, "invocation_params")}
    metadata = object_in(extra, "metadata")
    answered = _answer_fields(outputs)
    sampling = {name: asked.get(name) for name in _SAMPLING}
    for name in ("temperature", "max_tokens"):
        sampling[name] = metadata.get(f"ls_{name}") if sampling[name] is None else sampling[name]
    tools = asked.get("tools")
    return CallFacts(
        model=text_in(asked, "model", "model_name") or text_in(metadata, "ls_model_name"),
        sampling=sampling,
        tools=tools if isinstance(tools, list) and tools else None,
        finish=text_in(answered, "finish_reason", "stop_reason"),
        usage=_usage(run, outputs, answered, metadata),
        started_ms=millis(run.get("start_time")),
        ended_ms=millis(run.get("end_time")),
        source={name: run[name] for name in ("name", "tags", "error") if run.get(name)}
        | {"extra": rest_of(extra, "runtime")},
    )


def _answer_fields(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the first response with its end and its cost."""
    generations = outputs.get("generations")
    if isinstance(generations, list) and generations:
        first = generations[0][0] if isinstance(generations[0], list) and generations[0] else generations[0]
        if isinstance(first, dict):
            message = object_in(first, "message")
            fields = object_in(message, "kwargs") or object_in(message, "data") or message
            return {
                **object_in(first, "generation_info"),
                **object_in(fields, "response_metadata"),
                "usage_metadata": fields.get("usage_metadata"),
            }
        return {}
    choices = array_in(outputs, "choices")
    first = choices[0] if choices and isinstance(choices[0], dict) else outputs
    return {name: first.get(name) for name in ("finish_reason", "stop_reason", "usage_metadata")}


def _usage(run: Run, outputs: Mapping[str, Any], answered: Mapping[str, Any], metadata: Mapping[str, Any]) -> Usage:
    """Return the first non-empty counts; all places repeat the same ones."""
    llm_output = object_in(outputs, "llm_output")
    for each in (
        answered.get("usage_metadata"), outputs.get("usage_metadata"), outputs.get("usage"), llm_output.get("token_usage"),
        llm_output.get("usage"), metadata.get("usage_metadata"), run,
    ):  # fmt: skip
        found = read_usage(each)
        if found.input is not None or found.output is not None:
            return found
    return NONE


def error_of(run: Run) -> str | None:
    """Return the error of a run without its traceback."""
    error = run.get("error")
    if error is None or error == "":
        return None
    return error_words(str(error))
