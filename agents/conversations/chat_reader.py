"""Reads conversation events: checks them, removes secrets, and keeps the parts that rows need."""

from hashlib import sha256
from typing import Any, Final

from pydantic import ValidationError

from agents.conversations.chat import Asked, AskedTool, Told
from agents.conversations.held_text import IN_MEMORY, TextStore, held
from agents.conversations.tokens import MISSING, BadTokensError, read_tokens
from agents.evidence.canonical import canonical_bytes, digest
from agents.redaction.redaction import Counts, redact, redact_json, was_redacted
from schemas.codec.body import first_problem
from schemas.conversation import MAX_MESSAGE_BYTES, ChatMessage, ModelCall, RequestedCall
from schemas.errors import BraidError
from schemas.events import PackedTokens
from schemas.jsontext import compact, parse

SHORTEST_SECRET: Final = 16
"""Characters of a name below which no rule finds a secret in it."""


class BadChatEventError(BraidError):
    """A message or model call that cannot be read."""


def check_size(size: int) -> None:
    """Raise BadChatEventError if the data of a message exceed the size limit."""
    if size > MAX_MESSAGE_BYTES:
        raise BadChatEventError(
            f"message: {size:,} bytes, and {MAX_MESSAGE_BYTES:,} are allowed; keep media outside and name their digests"
        )


def read_message(data: dict[str, Any], seq: int, redacting: bool, texts: TextStore) -> tuple[Told, Counts]:
    """Return the message of an event's data. Raises BadChatEventError."""
    try:
        read = ChatMessage.model_validate(data)
    except ValidationError as error:
        raise BadChatEventError(f"message: {first_problem(error)}") from None
    clean = _Cleaner(redacting)
    content, parts = _content(read, clean)
    reasoning = clean.text(read.reasoning)
    tools = tuple([_asked_tool(call, clean) for call in read.tool_calls])
    seen = _seen(read, content, parts, reasoning, tools)
    raw = b"" if read.role != "tool" else (_raw_text(read) or "null").encode()
    told = Told(
        read.role,
        None if content is None else held(content, texts),
        message_id=read.id or f"m{seq}",
        agent=clean.name(read.agent),
        parts=parts,
        reasoning=reasoning or None,
        tools=tools,
        tool_call_id=read.tool_call_id,
        name=clean.name(read.name),
        is_error=read.is_error,
        output_digest=digest(raw) if raw else "",
        output_bytes=len(raw),
        key=sha256(seen).digest(),
        size=len(seen),
    )
    counts = clean.counts()
    told.removed = bool(counts) or was_redacted(seen.decode())
    return told, counts


def read_call(
    data: dict[str, Any], redacting: bool, tokens: PackedTokens | None = None, texts: TextStore = IN_MEMORY
) -> tuple[Asked, Counts]:
    """Return the model call of an event's data and of its tokens. Raises BadChatEventError."""
    try:
        read = ModelCall.model_validate(data)
        held_tokens = read_tokens(read.tokens, tokens, texts, has_former=read.context.after is not None)
    except ValidationError as error:
        raise BadChatEventError(f"model_call: {first_problem(error)}") from None
    except BadTokensError as error:
        raise BadChatEventError(f"model_call: {error}") from None
    clean = _Cleaner(redacting)
    tools, tools_digest = None, read.tools_digest
    if read.tools is not None:
        tools, tools_digest = compact(clean.json(read.tools)), digest(canonical_bytes(read.tools, big_integers="exact"))
    usage = read.usage
    asked = Asked(
        read.call_id,
        read.context.after,
        read.context.keep,
        read.context.add,
        read.response,
        agent=clean.name(read.agent),
        model=clean.name(read.model),
        tools=tools,
        tools_digest=tools_digest,
        input_tokens=None if usage is None else usage.input,
        output_tokens=None if usage is None else usage.output,
        cached_tokens=None if usage is None else usage.cached,
        tokens=held_tokens,
        tokens_left_out=None if read.tokens is None or held_tokens is not None else read.tokens.left_out or MISSING,
        policy_version=clean.name(read.policy_version),
    )
    counts = clean.counts()
    asked.removed = bool(counts) or (tools is not None and was_redacted(tools))
    return asked, counts


class _Cleaner:
    """Removes secrets and counts them; returns its input unchanged if redaction is off."""

    def __init__(self, redacting: bool) -> None:
        self._redacting = redacting
        self._counts: dict[str, int] = {}

    def text(self, text: str | None) -> str | None:
        if text is None or not self._redacting:
            return text
        cleaned = redact(text)
        self._add(cleaned.counts)
        return cleaned.text

    def name(self, text: str | None) -> str | None:
        return text or None if text is None or len(text) < SHORTEST_SECRET else self.text(text)

    def json(self, value: Any) -> Any:
        if not self._redacting:
            return value
        cleaned = redact_json(value)
        self._add(cleaned.counts)
        return cleaned.value

    def _add(self, counts: Counts) -> None:
        for kind, count in counts:
            self._counts[kind] = self._counts.get(kind, 0) + count

    def counts(self) -> Counts:
        return tuple(sorted(self._counts.items())) if self._counts else ()


def _raw_text(read: ChatMessage) -> str | None:
    if read.content is None or isinstance(read.content, str):
        return read.content
    return "".join([part.text or "" for part in read.content if part.type == "text"])


def _content(read: ChatMessage, clean: _Cleaner) -> tuple[str | None, str | None]:
    """The text of a message, and its parts if there is more than one text."""
    if read.content is None or isinstance(read.content, str):
        return clean.text(read.content), None
    parts = [part.model_dump(exclude_none=True) for part in read.content]
    # Removed from the whole first: a secret may be spread over two parts.
    joined = _raw_text(read) or ""
    text = clean.text(joined)
    if len(parts) == 1 and parts[0]["type"] == "text":
        return text, None
    if text is not joined:
        media = [part for part in parts if part["type"] != "text"]
        return text, compact([{"type": "text", "text": text}, *clean.json(media)])
    return text if any("text" in part for part in parts) else None, compact(clean.json(parts))


def _asked_tool(call: RequestedCall, clean: _Cleaner) -> AskedTool:
    """A tool call: its arguments as the model wrote them, unless something had to be removed from them."""
    try:
        value = parse(call.arguments)
    except ValueError:
        value = None
    name = clean.name(call.name) or call.name
    if not isinstance(value, dict):
        text = clean.text(call.arguments) or ""
        return AskedTool(call.id, name, text, digest(call.arguments.encode()), True)
    cleaned = clean.json(value)
    text = call.arguments if cleaned is value else compact(cleaned)
    return AskedTool(call.id, name, text, digest(canonical_bytes(value, big_integers="exact")), False)


def _seen(
    read: ChatMessage, content: str | None, parts: str | None, reasoning: str | None, tools: tuple[AskedTool, ...]
) -> bytes:
    """Everything that a model sees of the message, as JSON."""
    seen = [
        read.role, content, parts, reasoning or None, [[call.call_id, call.name, call.arguments] for call in tools],
        read.tool_call_id, read.name or None, read.is_error,
    ]  # fmt: skip
    return compact(seen).encode()
