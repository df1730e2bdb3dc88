"""The dialect of OpenTelemetry's conventions: gen_ai.* attributes in the current form and in older ones.

Current: gen_ai.input.messages and gen_ai.output.messages, as JSON. Older: gen_ai.prompt.N.* and gen_ai.completion.N.*,
or span events (gen_ai.user.message, gen_ai.choice), which some producers write as log records.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from agents.importers.otlp.attribute_tree import at, listed, nested, parsed, parsed_list
from agents.importers.otlp.known_messages import KnownMessages
from agents.importers.otlp.model_span import ModelSpan, known, source_of, trouble
from agents.importers.otlp.spans import Span, SpanEvent
from agents.importers.traces.call_facts import CallFacts
from agents.importers.traces.fields import number_in, text_in, whole_in
from agents.importers.traces.spoken import Spoken
from agents.importers.traces.spoken_chat import Unread, merged, read_messages
from agents.importers.traces.tool_join import ToolRun
from agents.importers.traces.usage import Usage

MODEL = frozenset({"chat", "generate_content", "text_completion", "completion"})
TOOL = frozenset({"execute_tool"})
AGENT = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})

_SAMPLING = {
    "gen_ai.request.temperature": "temperature", "gen_ai.request.top_p": "top_p", "gen_ai.request.top_k": "top_k",
    "gen_ai.request.seed": "seed", "gen_ai.openai.request.seed": "seed", "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.stop_sequences": "stop",
}  # fmt: skip
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
_CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
_REASONING = (
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.usage.details.reasoning_tokens",
)
_MODELS = ("gen_ai.request.model", "gen_ai.response.model")
_CONTENT = (
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.prompt.",
    "gen_ai.completion.", "llm.request.functions.",
)  # fmt: skip
_READ = dict.fromkeys(
    (*_SAMPLING, *_INPUT, *_OUTPUT, *_CACHED, *_REASONING, "gen_ai.request.model", "gen_ai.response.finish_reasons")
)
_SAID = {
    "gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}  # fmt: skip
DETAILS = "gen_ai.client.inference.operation.details"


def kind_of(span: Span) -> str | None:
    """Return model, tool or agent. Returns None for a span of another kind."""
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if operation in MODEL or attributes.get("llm.request.type") in ("chat", "completion"):
        return "model"
    if operation in TOOL or attributes.get("traceloop.span.kind") == "tool":
        return "tool"
    if operation in AGENT or attributes.get("traceloop.span.kind") == "agent":
        return "agent"
    return "model" if operation is None and "gen_ai.completion.0.role" in attributes else None


def read_model(span: Span, unread: Unread, known_messages: KnownMessages) -> ModelSpan:
    """Read the call that a span describes."""
    attributes = dict(span.attributes)
    for event in span.events:
        if event.name == DETAILS:
            attributes |= event.attributes
    sent, said, finish = _messages(span, attributes, unread, known_messages)
    failed = trouble(span)
    if failed is not None:
        said = []
    facts = CallFacts(
        model=text_in(attributes, *_MODELS),
        sampling={name: _option(name, attributes[key]) for key, name in _SAMPLING.items() if key in attributes},
        tools=_tools(attributes),
        finish=finish,
        usage=Usage(
            whole_in(attributes, *_INPUT), whole_in(attributes, *_OUTPUT), whole_in(attributes, *_CACHED),
            number_in(attributes, "gen_ai.usage.cost"), whole_in(attributes, *_REASONING),
        ),
        error=failed, started_ms=span.started_ms, ended_ms=span.ended_ms, source=source_of(span, _READ, _CONTENT),
    )  # fmt: skip
    return ModelSpan(span, known(sent), said, facts, text_in(attributes, "gen_ai.response.id"))


def _messages(
    span: Span, attributes: Mapping[str, Any], unread: Unread, known_messages: KnownMessages
) -> tuple[list[Spoken] | None, list[Spoken], str | None]:
    """Return the request messages, the responses and their finish reasons, from the first form that is present."""
    place = f"span {span.span_id}"
    reasons = attributes.get("gen_ai.response.finish_reasons")
    finish = str(reasons[0]) if isinstance(reasons, list) and reasons else reasons if isinstance(reasons, str) else None
    sent = known_messages.of_text(attributes.get("gen_ai.input.messages"), f"{place} gen_ai.input.messages", unread)
    said = parsed_list(attributes.get("gen_ai.output.messages"))
    if sent is not None or said is not None:
        given = None if sent is None else _system(attributes) + sent
        answers = read_messages(said or [], f"{place} gen_ai.output.messages", unread)
        return given, _choices(answers, reasons), finish or _ended(said)
    tree = at(nested(attributes, "gen_ai.prompt.", "gen_ai.completion."), "gen_ai") or {}
    if tree:
        prompts, completions = listed(tree.get("prompt")), listed(tree.get("completion"))
        given = read_messages([_older(each) for each in prompts], f"{place} gen_ai.prompt", unread) if prompts else None
        answers = read_messages(
            [_older(each, "assistant") for each in completions], f"{place} gen_ai.completion", unread
        )
        return given, _choices(answers, reasons), finish or _ended(completions)
    return *_from_events(span, place, unread), finish


def _choices(answers: list[Spoken], reasons: Any) -> list[Spoken]:
    """Return the responses: one per finish reason, else one response, which is merged from its parts."""
    said = [each for each in answers if each.role == "assistant" and each.says_something]
    if isinstance(reasons, list) and len(reasons) == len(said) > 1:
        return said
    whole = merged(said)
    return [] if whole is None else [whole]


def _ended(said: Any) -> str | None:
    first = said[0] if isinstance(said, list) and said else None
    return text_in(first, "finish_reason") if isinstance(first, dict) else None


def _system(attributes: Mapping[str, Any]) -> list[Spoken]:
    parts = parsed_list(attributes.get("gen_ai.system_instructions"))
    if parts is None:
        text = attributes.get("gen_ai.system_instructions")
        return [Spoken("system", text)] if isinstance(text, str) and text else []
    return read_messages([{"role": "system", "parts": parts}], "gen_ai.system_instructions", Unread())


def _tools(attributes: Mapping[str, Any]) -> list[Any] | None:
    tools = parsed_list(attributes.get("gen_ai.tool.definitions"))
    if tools is not None:
        return tools
    older = listed(at(nested(attributes, "llm.request.functions."), "llm", "request", "functions"))
    return [each | {"parameters": parsed(each.get("parameters"))} for each in older if isinstance(each, dict)] or None


def _older(node: Any, role: str | None = None) -> Any:
    """Convert a message of gen_ai.prompt.N or gen_ai.completion.N to a chat message."""
    if not isinstance(node, dict):
        return node
    message = {
        "role": role,
        **{name: value for name, value in node.items() if name not in ("tool_calls", "finish_reason")},
    }
    content = message.get("content")
    if isinstance(content, str) and content.startswith("[{"):
        parts = parsed(content)
        if isinstance(parts, list) and all(isinstance(each, dict) and "type" in each for each in parts):
            message["content"] = parts
    calls = listed(node.get("tool_calls"))
    return message | ({"tool_calls": calls} if calls else {})


def _from_events(span: Span, place: str, unread: Unread) -> tuple[list[Spoken] | None, list[Spoken]]:
    """Return messages and responses from the span's events."""
    sent, said = [], []
    for event in sorted(span.events, key=lambda each: each.time):
        if event.name in _SAID:
            sent.append({"role": _SAID[event.name], **_body(event)})
        elif event.name == "gen_ai.choice":
            body = _body(event)
            message = parsed(body.get("message"))
            said.append({"role": "assistant", **(message if isinstance(message, dict) else body)})
        elif event.name == "gen_ai.content.prompt":
            sent += parsed_list(event.attributes.get("gen_ai.prompt")) or []
        elif event.name == "gen_ai.content.completion":
            said += parsed_list(event.attributes.get("gen_ai.completion")) or []
    given = read_messages([_told(each) for each in sent], f"{place} events", unread) if sent else None
    answers = read_messages([_told(each) for each in said], f"{place} gen_ai.choice", unread)
    return given, [each for each in answers if each.says_something]


def _body(event: SpanEvent) -> dict[str, Any]:
    """Return the message of an event: its body, a JSON attribute, or its attributes."""
    if isinstance(event.body, dict):
        return event.body
    content = parsed(event.attributes.get("gen_ai.event.content"))
    if isinstance(content, dict):
        return content
    return {name: value for name, value in event.attributes.items() if "." not in name}


def _told(message: Any) -> Any:
    """Convert the message of an event to a chat message. The id of a tool message is its call's id."""
    if not isinstance(message, dict):
        return message
    calls = parsed_list(message.get("tool_calls"))
    if message.get("role") == "tool" and "tool_call_id" not in message:
        message = {**message, "tool_call_id": message.get("id")}
    kept = {name: value for name, value in message.items() if name not in ("id", "tool_calls", "index")}
    return kept | ({"tool_calls": calls} if calls is not None else {})


def read_tool(span: Span, turn: str, agent: str | None, error: Mapping[str, Any] | None) -> ToolRun:
    """Read the tool run that a span describes."""
    attributes = span.attributes
    names = ("gen_ai.tool.name", "traceloop.entity.name")
    given = next(
        (attributes[key] for key in ("gen_ai.tool.call.arguments", "traceloop.entity.input") if key in attributes), None
    )
    output = next(
        (attributes[key] for key in ("gen_ai.tool.call.result", "traceloop.entity.output") if key in attributes), None
    )
    read = dict.fromkeys(
        (
            *names,
            "gen_ai.tool.call.id",
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.result",
            "gen_ai.operation.name",
        )
    )
    return ToolRun(
        span.at, text_in(attributes, *names) or span.name.removeprefix("execute_tool ") or None, given, output, error,
        text_in(attributes, "gen_ai.tool.call.id"), turn, span.ended_ms, agent, source_of(span, read),
    )  # fmt: skip


def agent_name(span: Span) -> str | None:
    """Return the agent name of a span."""
    name = text_in(span.attributes, "gen_ai.agent.name", "agent.name", "traceloop.entity.name")
    return name or span.name.removeprefix("invoke_agent").strip() or None


def evaluations(span: Span) -> Iterator[dict[str, Any]]:
    """Yield evaluation results: name, score, label, explanation."""
    for event in span.events:
        if event.name == "gen_ai.evaluation.result":
            yield {
                "name": text_in(event.attributes, "gen_ai.evaluation.name"),
                "score": event.attributes.get("gen_ai.evaluation.score.value"),
                "label": event.attributes.get("gen_ai.evaluation.score.label"),
                "explanation": text_in(event.attributes, "gen_ai.evaluation.explanation"),
            }


def _option(name: str, value: Any) -> Any:
    """Return a sampling option. The conventions write top_k as a float."""
    is_whole = (
        name not in ("temperature", "top_p") and isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    )
    return int(value) if is_whole else value
