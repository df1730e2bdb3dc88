"""The dialect of OpenInference: llm.input_messages.N.*, llm.output_messages.N.*, tool.*, and spans of a named kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from agents.importers.otlp.attribute_tree import at, listed, nested, parsed
from agents.importers.otlp.known_messages import KnownMessages
from agents.importers.otlp.model_span import ModelSpan, known, source_of, trouble
from agents.importers.otlp.spans import Span
from agents.importers.traces.call_facts import CallFacts
from agents.importers.traces.fields import as_text, number_in, text_in, whole_in
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.spoken_chat import Unread, merged, read_messages
from agents.importers.traces.tool_join import ToolRun
from agents.importers.traces.usage import Usage

KIND = "openinference.span.kind"
_KINDS = {
    "LLM": "model",
    "TOOL": "tool",
    "AGENT": "agent",
    "CHAIN": "chain",
    "GUARDRAIL": "guardrail",
    "EVALUATOR": "evaluator",
}
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "max_tokens": "max_tokens",
    "stop": "stop",
}
_SAMPLING |= {"max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens", "stop_sequences": "stop"}
_MODELS = ("llm.request.model_name", "llm.model_name", "llm.response.model_name")
_COUNTS = (
    "llm.token_count.prompt",
    "llm.token_count.completion",
    "llm.token_count.prompt_details.cache_read",
    "llm.cost.total",
)
_CONTENT = (
    "llm.input_messages.", "llm.output_messages.", "llm.tools.", "llm.prompts.", "llm.choices.", "input.value", "output.value",
    "input.mime_type", "output.mime_type",
)  # fmt: skip
_READ = dict.fromkeys((*_MODELS[:2], *_COUNTS, KIND, "llm.finish_reason", "llm.invocation_parameters"))
_EVALUATED = ("annotations", "evaluations", "trace.annotations", "trace.evaluations")
_EVALUATIONS = tuple(f"{name}." for name in _EVALUATED)


def kind_of(span: Span) -> str | None:
    """Return model, tool, agent, chain, guardrail or evaluator. Returns None for a span of another kind."""
    kind = span.attributes.get(KIND)
    return _KINDS.get(kind.upper()) if isinstance(kind, str) else None


def read_model(span: Span, unread: Unread, known_messages: KnownMessages) -> ModelSpan:
    """Read the call that a span describes."""
    attributes = span.attributes
    tree = (
        at(
            nested(attributes, "llm.output_messages.", "llm.tools.", "llm.prompts.", "llm.choices."),
            "llm",
        )
        or {}
    )
    raw = parsed(attributes.get("output.value"))
    place = f"span {span.span_id}"
    failed = trouble(span)
    sent = _sent(tree, attributes, place, unread, known_messages)
    said = [] if failed is not None else _said(tree, attributes, raw, place, unread)
    asked = parsed(attributes.get("llm.invocation_parameters"))
    options = asked if isinstance(asked, dict) else {}
    tools = [
        read for each in listed(tree.get("tools")) if (read := parsed(at(each, "tool", "json_schema"))) is not None
    ]
    rest = {name: value for name, value in options.items() if name not in _SAMPLING and name not in ("model", "tools")}
    facts = CallFacts(
        model=text_in(attributes, *_MODELS) or text_in(options, "model"),
        sampling={_SAMPLING[name]: value for name, value in options.items() if name in _SAMPLING} | rest,
        tools=tools or None,
        finish=text_in(attributes, "llm.finish_reason"),
        usage=Usage(
            whole_in(attributes, _COUNTS[0]), whole_in(attributes, _COUNTS[1]), whole_in(attributes, _COUNTS[2]),
            number_in(attributes, _COUNTS[3]), whole_in(attributes, "llm.token_count.completion_details.reasoning"),
        ),
        error=failed, started_ms=span.started_ms, ended_ms=span.ended_ms, source=source_of(span, _READ, _CONTENT),
    )  # fmt: skip
    return ModelSpan(span, known(sent), said, facts, text_in(raw, "id") if isinstance(raw, dict) else None)


def _sent(
    tree: Mapping[str, Any], attributes: Mapping[str, Any], place: str, unread: Unread, known_messages: KnownMessages
) -> list[Spoken] | None:
    where = f"{place} llm.input_messages"
    messages = known_messages.of_attributes(attributes, "llm.input_messages.", _chat, where, unread)
    if messages:
        failed = _failed(attributes.get("input.value"))
        return (
            [each._replace(is_error=True) if each.call_id in failed else each for each in messages]
            if failed
            else messages
        )
    prompts = [at(each, "prompt", "text") for each in listed(tree.get("prompts"))]
    if prompts:
        return [Spoken("user", each) for each in prompts if isinstance(each, str)]
    given = attributes.get("input.value")
    request = parsed(given)
    if isinstance(request, dict) and isinstance(request.get("messages"), list):
        system = request.get("system")
        first = [{"role": "system", "content": system}] if system else []
        return read_messages([*first, *request["messages"]], f"{place} input.value", unread)
    return [Spoken("user", given)] if isinstance(given, str) and not isinstance(request, dict | list) else None


def _failed(given: Any) -> set[str | None]:
    """Return ids of calls whose results are marked as errors. Only Anthropic's raw request has these marks."""
    request = parsed(given) if isinstance(given, str) and '"is_error"' in given else None
    messages = request.get("messages") if isinstance(request, dict) else None
    sent = read_messages(messages, "", Unread()) if isinstance(messages, list) else []
    return {each.call_id for each in sent if each.is_error and each.call_id}


def _said(tree: Mapping[str, Any], attributes: Mapping[str, Any], raw: Any, place: str, unread: Unread) -> list[Spoken]:
    messages = [_chat(at(each, "message"), "assistant") for each in listed(tree.get("output_messages"))]
    given = raw.get("choices") if isinstance(raw, dict) else None
    choices = [each.get("message") for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    if not messages:
        texts = [at(each, "completion", "text") for each in listed(tree.get("choices"))]
        if any(texts):
            return [Spoken("assistant", each) for each in texts if isinstance(each, str)]
        if choices:
            return [each for each in read_messages(choices, f"{place} output.value", unread) if each.says_something]
        text = attributes.get("output.value")
        return (
            [Spoken("assistant", text)] if isinstance(text, str) and text and not isinstance(raw, dict | list) else []
        )
    said = [
        each for each in read_messages(messages, f"{place} llm.output_messages", unread) if each.role == "assistant"
    ]
    if len(choices) == len(said) > 1:
        return [each for each in said if each.says_something]
    whole = merged(said)
    if whole is None:
        return []
    if whole.reasoning is None and len(choices) == 1 and isinstance(choices[0], dict):
        thought = text_in(choices[0], "reasoning_content", "reasoning")
        whole = whole._replace(reasoning=thought)  # only the complete answer has the reasoning
    return [whole]


def _chat(message: Any, role: str | None = None) -> Any:
    """Convert a message from the attributes to a chat message."""
    if not isinstance(message, dict):
        return message
    found: dict[str, Any] = {"role": message.get("role") or role}
    calls = [_call(each) for each in listed(message.get("tool_calls"))]
    contents = listed(message.get("contents"))
    if contents:
        found["content"] = [part for each in contents if (part := _part(each, has_calls=bool(calls))) is not None]
    elif "content" in message:
        found["content"] = message["content"]
    if calls:
        found["tool_calls"] = calls
    elif text_in(message, "function_call_name"):
        found["function_call"] = {
            "name": message["function_call_name"],
            "arguments": message.get("function_call_arguments_json"),
        }
    for name in ("tool_call_id", "name"):
        if name in message:
            found[name] = message[name]
    return found


def _call(node: Any) -> Any:
    call = at(node, "tool_call")
    return {"id": at(call, "id"), "name": at(call, "function", "name"), "arguments": at(call, "function", "arguments")}


def _part(node: Any, *, has_calls: bool) -> Any:
    """Convert a content part. Returns None for a call that is also listed outside the content."""
    content = at(node, "message_content")
    if not isinstance(content, dict):
        return {"type": "tool_use", **_call(node)} if at(node, "tool_call") is not None and not has_calls else None
    kind = content.get("type")
    if kind in ("tool_use", "tool_call", "function_call"):
        return None if has_calls else {"type": "tool_use", **_call(node)}
    if kind in ("text", "reasoning", "thinking"):
        return content
    url = at(content, "image", "image", "url") or at(content, "image", "url")
    return {**content, "type": kind or "other", **({"url": url} if url else {})}


def read_tool(span: Span, turn: str, agent: str | None, error: Mapping[str, Any] | None) -> ToolRun:
    """Read the tool run that a span describes. LangChain writes the resulting message with it."""
    attributes = span.attributes
    read = dict.fromkeys(
        (KIND, "tool.name", "tool_call.id", "input.value", "output.value", "input.mime_type", "output.mime_type")
    )
    output = attributes.get("output.value")
    held = parsed(output)
    message = (at(held, "data") or at(held, "kwargs") or held) if isinstance(held, dict) else None
    told = message if isinstance(message, dict) and "tool_call_id" in message else {}
    if error is None and told.get("status") == "error":
        error = {"message": as_text(told.get("content"))}
    return ToolRun(
        span.at, text_in(attributes, "tool.name") or span.name or None, attributes.get("input.value"),
        told.get("content", output), error,
        text_in(attributes, "tool_call.id") or text_in(told, "tool_call_id"), turn, span.ended_ms, agent, source_of(span, read),
    )  # fmt: skip


def agent_name(span: Span) -> str | None:
    """Return the agent name of a span."""
    return text_in(span.attributes, "agent.name", "graph.node.name") or span.name or None


def evaluations(span: Span) -> Iterator[dict[str, Any]]:
    """Yield a span's annotations and the findings of an evaluator span: name, score, label, explanation."""
    tree = nested(span.attributes, *_EVALUATIONS)
    for prefix in _EVALUATED if tree else ():
        for each in listed(at(tree, *prefix.split("."))):
            found = at(each, "annotation") or at(each, "evaluation")
            if isinstance(found, dict):
                yield {name: found.get(name) for name in ("name", "score", "label", "explanation")}
    if kind_of(span) == "evaluator":
        found = parsed(span.attributes.get("output.value"))
        said = found if isinstance(found, dict) else {}
        if any(name in said for name in ("score", "label")):
            yield {
                "name": text_in(said, "name") or span.name,
                **{name: said.get(name) for name in ("score", "label", "explanation")},
            }
