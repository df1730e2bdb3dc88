"""Reads agent events into pieces: their digests, and the few fields that records are made of.

Raw bytes are not stored: an output is redacted in full and cut to an excerpt when it is read, with the digest of its
raw form. Unknown kinds keep their digest, so they still count in the branch's raw digest.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from orjson import OPT_SORT_KEYS, dumps

from agents.conversations.chat import BAD_EVENT, Odd, Uttered
from agents.conversations.chat_reader import (
    SHORTEST_SECRET,
    BadChatEventError,
    check_size,
    read_call,
    read_message,
)  # fmt: skip
from agents.conversations.held_text import IN_MEMORY, TextStore, held
from agents.evidence.canonical import canonical_bytes, digest, written_alike
from agents.redaction.redaction import Counts, redact, redact_json
from agents.summarize.loose_fields import first, text_or_none, whole_or_none
from agents.summarize.output import byte_length, excerpt, render
from agents.summarize.pieces import (
    EXACT,
    PLAIN,
    TRANSCRIPT,
    Answer,
    Body,
    Call,
    Decision,
    Failure,
    Noted,
    Piece,
    Result,
    Round,
    Said,
    Spent,
    Start,
)  # fmt: skip
from schemas.event_kinds import CONVERSATION
from schemas.events import AgentEvent, EventFields, PackedTokens, fields_of
from schemas.jsontext import as_object, compact, parse_object, parse_short_numbers

PROVIDER_TROUBLE = (
    "overloaded", "rate limit", "rate_limit", "ratelimit", "too many requests", "service unavailable", "bad gateway",
    "gateway timeout", "internal server error", "api_error", "connection error", "connection reset", "connection refused",
    "econnreset", "econnrefused", "etimedout", "socket hang up", "timed out", "fetch failed", "quota exceeded",
    "insufficient_quota", "authentication_error", "invalid api key", "529", "503", "502", "504", "500", "429",
)  # fmt: skip
"""Words in an `error` event that show that the model's provider failed, not the agent. Numbers match only as whole
words.
"""


Canonical = Callable[[Any], bytes]
"""Canonical JSON of data: by orjson alone where that is enough."""


def keep(event: AgentEvent, *, redacting: bool) -> Body:
    """The content of one event. Raises ValueError when its data is not a JSON object."""
    noted = keep_slice((fields_of(event),), 0, 0, redacting=redacting).noted
    return noted[0].body if noted else None


def keep_slice(
    events: Sequence[EventFields], first_seq: int, at: int, *, redacting: bool, texts: TextStore = IN_MEMORY
) -> Piece:
    """Reduce contiguous events. Raises ValueError when the data of one is not a JSON object."""
    digests: list[bytes] = []
    noted: list[Noted] = []
    said = _Said(noted)
    first: int | None = None
    last: int | None = None
    form = PLAIN
    for trace, parent, channel, kind, text, time, packed in events:
        token = _token(text) if kind == "thinking_delta" and len(text) <= LONGEST_TOKEN else None
        if token is not None:
            canonical = text.encode()
            words, number = token.groups()
            step = int(number)
            if step == said.step:  # nearly always
                said.parts.append(words)
            else:
                said.add(words, step)
        else:
            canonical, body, counts, shape = _read(
                text, kind, channel, first_seq + len(digests), redacting, texts, packed
            )
            form = max(form, shape)
            if isinstance(body, Said):
                said.add(body.text, body.step)
            elif body is not None:
                said.end()
                noted.append(Noted(body, time, counts))
        before, between, after = _frame(channel, kind, parent, trace)
        moment = b"null"
        if time is not None:
            moment = str(time).encode()
            first, last = time if first is None else first, time
        digests.append(sha256(b"".join((before, canonical, between, moment, after))).digest())
    said.end()
    return Piece(first_seq, at, b"".join(digests), tuple(noted), first, last, form)


class _Said:
    """Joins the text that the model writes in one step."""

    __slots__ = ("_noted", "parts", "step")

    def __init__(self, noted: list[Noted]) -> None:
        self._noted = noted
        self.parts: list[str] = []
        self.step: int | None = None

    def add(self, text: str, step: int | None) -> None:
        if step != self.step:
            self.end()
            self.step = step
        self.parts.append(text)

    def end(self) -> None:
        """Store the text written so far."""
        if self.parts:
            text = "".join(self.parts)
            if text:
                self._noted.append(Noted(Said(text, self.step), None, ()))
            self.parts = []


def _read(
    text: str, kind: str, channel: str, seq: int, redacting: bool, texts: TextStore, packed: PackedTokens | None
) -> tuple[bytes, Body, Counts, int]:
    """The canonical JSON of an event's data, the part that is kept, and its form of conversation."""
    data = as_object(parse_short_numbers(text))
    canonical: Canonical = _plainly
    if not written_alike(data):
        data, canonical = parse_object(text), _exactly
    raw = canonical(data)
    read = _READERS.get(kind)
    if read is not None:
        body, counts = read(data, redacting, canonical, texts)
        return raw, body, counts, PLAIN
    if kind in DECISIONS:
        return raw, Decision(kind), (), PLAIN
    return raw, *_read_words(text, data, kind, channel, seq, redacting, texts, packed)


def _read_words(
    text: str, data: dict[str, Any], kind: str, channel: str, seq: int, redacting: bool, texts: TextStore,
    packed: PackedTokens | None,
) -> tuple[Body, Counts, int]:  # fmt: skip
    """Read an event of a conversation, or of an unknown kind: the part that is kept, and the form of conversation that it shows."""
    if channel == CONVERSATION and kind in CHAT_FORMS:
        return _read_chat(text, data, kind, seq, redacting, texts, packed)
    if kind in UTTERANCES:
        return *_uttered(data, kind, channel, redacting, texts), TRANSCRIPT
    if kind in REWRITES:
        return Odd(kind, None, None), (), PLAIN
    if kind == IMPORTED:
        return None, (), TRANSCRIPT
    said = _said(data) if channel == "text" else None
    return None if said is None else Odd("unknown_text", said.text, said.step), (), PLAIN


def _read_chat(
    text: str, data: dict[str, Any], kind: str, seq: int, redacting: bool, texts: TextStore, packed: PackedTokens | None
) -> tuple[Body, Counts, int]:
    """A message or model call. An unreadable one only keeps its branch out of rows: older logs may have other events of
    these names.
    """
    try:
        if kind == "message":
            check_size(byte_length(text))
            body, counts = read_message(data, seq, redacting, texts)
            return body, counts, TRANSCRIPT
        call, counts = read_call(data, redacting, packed, texts)
    except BadChatEventError:
        return Odd(BAD_EVENT, None, None), (), CHAT_FORMS[kind]
    return call, counts, EXACT


LONGEST_TOKEN: Final = 200
"""Characters of data from which a parser is quicker than the pattern."""

_token: Final = re.compile(r'\{"delta":"([^"\\\x00-\x1f]*)","step":(0|[1-9][0-9]{0,14})\}').fullmatch
"""The data of most events, a token of the model's text, if the text is its own canonical JSON: no parsing is needed."""


DECISIONS: Final = frozenset({"supervisor_decision", "guardrail_tripwire"})
"""Kinds that claim a decision; emission version 1 counts them. A proposal (`action_proposed`) or a question
(`await_human_input`) is not a decision.
"""


CHAT_FORMS: Final = {"message": TRANSCRIPT, "model_call": EXACT}
"""Conversation events, and the form of conversation that they show."""

UTTERANCES: Final = {
    "user_message": "user", "context_message": "context", "assistant_message": "assistant", "reasoning": "reasoning"
}  # fmt: skip
"""Kinds that are turns of a transcript."""

IMPORTED: Final = "import_source"
"""First event of an import: a conversation in order, even if its model calls tools and never writes a text."""

REWRITES: Final = frozenset({"context_rewritten", "unreadable", "content_left_out"})
"""Kinds that mark a difference between the recorded events and what the model saw."""


_SORTED: Final = OPT_SORT_KEYS


def _plainly(value: Any) -> bytes:
    return dumps(value, option=_SORTED)


def _exactly(value: Any) -> bytes:
    return canonical_bytes(value, big_integers="exact")


@lru_cache(maxsize=4096)
def _frame(channel: str, kind: str, parent: str | None, trace: str) -> tuple[bytes, bytes, bytes]:
    """The canonical JSON of an event around its data and its time: the same for most events of a branch."""
    quoted = [canonical_bytes(part) for part in (channel, kind, parent, trace)]
    return (
        b'{"channel":%b,"data":' % quoted[0],
        b',"event":%b,"parent_trace_id":%b,"timestamp_ms":' % (quoted[1], quoted[2]),
        b',"trace_id":%b}' % quoted[3],
    )


def _call(data: dict[str, Any], redacting: bool, canonical: Canonical, _texts: TextStore) -> tuple[Body, Counts]:
    arguments = first(data, "args", "arguments", "input", default={})
    raw = canonical(arguments)
    counts: dict[str, int] = {}
    if redacting:
        arguments, found = redact_json(arguments)
        counts = dict(found)
    name = _clean_name(first(data, "toolName", "tool_name", "name"), redacting, counts)
    return Call(
        call_id=text_or_none(first(data, "callId", "call_id", "id")),
        name=name or "unknown",
        arguments=compact(arguments),
        arguments_digest=digest(raw),
        batch=text_or_none(first(data, "batchId", "batch_id")),
        step=whole_or_none(first(data, "stepIndex", "step_index", "step")),
        malformed=data.get("argsError") is not None,
    ), _in_order(counts)


def _result(data: dict[str, Any], redacting: bool, _canonical: Canonical, texts: TextStore) -> tuple[Body, Counts]:
    output = render(first(data, "output", "result", "content"))
    raw = output if output is not None else "null"
    code, message = _tool_error(data.get("error"))
    counts: dict[str, int] = {}
    cleaned = None if output is None else _clean(output, redacting, counts)
    kept = None if cleaned is None else excerpt(cleaned)
    return Result(
        call_id=text_or_none(first(data, "callId", "call_id", "id", "tool_call_id")),
        name=_clean_name(first(data, "toolName", "tool_name", "name"), redacting, counts),
        output=kept,
        output_digest=digest(raw.encode()),
        output_bytes=0 if output is None else byte_length(output),
        error_code=_clean_name(code, redacting, counts),
        error_message=None if message is None else _clean(message, redacting, counts),
        whole=None if kept is None or kept.tail is None or cleaned is None else held(cleaned, texts),
    ), _in_order(counts)


def _tool_error(error: Any) -> tuple[str | None, str | None]:
    if error is None:
        return None, None
    if isinstance(error, dict):
        message = first(error, "message", "error", "reason")
        return text_or_none(error.get("code")), compact(error) if message is None else render(message)
    return None, render(error)


def _start(data: dict[str, Any], redacting: bool, _canonical: Canonical, _texts: TextStore) -> tuple[Body, Counts]:
    config = first(data, "agentConfig", "agent_config")
    config = config if isinstance(config, dict) else {}
    counts: dict[str, int] = {}
    task = text_or_none(data.get("task"))
    task = None if task is None else _clean(task, redacting, counts)
    model = _clean_name(config.get("model"), redacting, counts)
    known = _in_order(counts)  # the following counts only for rows of conversations: older records do not have it
    system = text_or_none(first(config, "systemPrompt", "system_prompt", "system"))
    system = None if system is None else _clean(system, redacting, {})
    tools = config.get("tools")
    defined = isinstance(tools, list) and any(isinstance(each, dict) for each in tools)
    offered = compact(redact_json(tools).value if redacting else tools) if defined else None
    return Start(task, model, system, offered), known


def _answer(data: dict[str, Any], redacting: bool, _canonical: Canonical, _texts: TextStore) -> tuple[Body, Counts]:
    counts: dict[str, int] = {}
    text = render(first(data, "answer", "text", "content"))
    return Answer(_clean(text or "", redacting, counts)), _in_order(counts)


def _failure(data: dict[str, Any], redacting: bool, _canonical: Canonical, _texts: TextStore) -> tuple[Body, Counts]:
    _, message = _tool_error(first(data, "error", "message"))
    counts: dict[str, int] = {}
    text = message or "the agent reported an error without a message"
    kind = render(data.get("error")) or ""
    return Failure(_clean(text, redacting, counts), provider=is_provider_trouble(f"{kind} {text}")), _in_order(counts)


def _delta(data: dict[str, Any], _redacting: bool, _canonical: Canonical, _texts: TextStore) -> tuple[Body, Counts]:
    return _said(data), ()


def _uttered(data: dict[str, Any], kind: str, channel: str, redacting: bool, texts: TextStore) -> tuple[Body, Counts]:
    text = first(data, "text", "content", "delta")
    if not isinstance(text, str):
        return Odd("no_text", None, None), ()
    counts: dict[str, int] = {}
    said = _said(data) if channel == "text" else None
    before = first(data, "beforeTask", "before_task") is True
    step = whole_or_none(first(data, "step", "stepIndex", "step_index"))
    kept = held(_clean(text, redacting, counts), texts)
    role = data.get("role") if kind == "context_message" else None
    return Uttered(
        UTTERANCES[kind], kept, step, before, None if said is None else said.text,
        role if role in ("system", "developer") else "user",
    ), _in_order(counts)  # fmt: skip


def _said(data: dict[str, Any]) -> Said | None:
    text = first(data, "delta", "text", "content")
    if not isinstance(text, str) or not text:
        return None
    return Said(text, whole_or_none(first(data, "step", "stepIndex", "step_index")))


def _spent(data: dict[str, Any], redacting: bool, _canonical: Canonical, _texts: TextStore) -> tuple[Body, Counts]:
    counts: dict[str, int] = {}
    usd = first(data, "estimatedUsd", "estimated_usd", "usd")
    return Spent(
        input_tokens=whole_or_none(first(data, "inputTokens", "input_tokens")),
        output_tokens=whole_or_none(first(data, "outputTokens", "output_tokens")),
        cached_tokens=whole_or_none(first(data, "cacheReadTokens", "cache_read_tokens", "cachedTokens")),
        usd=float(usd) if isinstance(usd, int | float) and not isinstance(usd, bool) else None,
        model=_clean_name(first(data, "modelId", "model_id", "model"), redacting, counts),
    ), _in_order(counts)


_MODES: Final = ("direct", "prompt_retry", "full_pcl")
_ROUND_STRATEGIES: Final = ("direct", "retry", "patch", "insert_section", "regenerate_region", "full")


def _round(data: dict[str, Any], redacting: bool, _canonical: Canonical, _texts: TextStore) -> tuple[Body, Counts]:
    """Read a round of a compliance run; an invalid one is ignored."""
    number, output, mode, strategy = (
        whole_or_none(data.get("round")),
        data.get("output"),
        data.get("mode"),
        data.get("strategy"),
    )
    known = isinstance(output, str) and mode in _MODES and strategy in _ROUND_STRATEGIES
    if not known or not isinstance(output, str) or number is None or not 0 <= number <= MOST_ROUNDS:
        return None, ()
    counts: dict[str, int] = {}
    target, usage, reason = data.get("target"), data.get("usage"), text_or_none(data.get("reason"))
    usage = usage if isinstance(usage, dict) else {}
    tokens = [_count(usage.get(name)) for name in ("input", "output", "cached")]
    return Round(
        number, str(mode), str(strategy),
        tuple([_clean(each, redacting, counts) for each in target if isinstance(each, str)]) if isinstance(target, list) else (),
        _clean(output, redacting, counts),
        digest(output.encode("utf-8", "surrogatepass")),
        "edit" if data.get("made_by") == "edit" else "model",
        base=_count(data.get("base_round")),
        committed=data.get("committed") is True,
        rolled_back=data.get("rolled_back") is True,
        reason=None if reason is None else _clean(reason, redacting, counts),
        truncated=data.get("truncated") is True,
        input_tokens=tokens[0], output_tokens=tokens[1], cached_tokens=tokens[2],
        latency_ms=_count(data.get("latency_ms")),
    ), _in_order(counts)  # fmt: skip


def _count(value: Any) -> int | None:
    found = whole_or_none(value)
    return found if found is not None and 0 <= found < 2**53 else None


MOST_ROUNDS: Final = 99_999

_READERS: Final = {
    "run_start": _start,
    "tool_call": _call,
    "tool_result": _result,
    "final_answer": _answer,
    "error": _failure,
    "thinking_delta": _delta,
    "model_done": _spent,
    "compliance_attempt": _round,
}


def is_provider_trouble(message: str) -> bool:
    """Whether an error is the model provider's, not the agent's: such a branch proves nothing about the agent."""
    text = message.lower()
    words = set(text.replace(":", " ").replace(",", " ").replace("(", " ").replace(")", " ").replace('"', " ").split())
    return any((sign in words) if sign.isdigit() else (sign in text) for sign in PROVIDER_TROUBLE)


def _clean_name(value: Any, redacting: bool, counts: dict[str, int]) -> str | None:
    """A name or a code: most are too short for a secret."""
    text = text_or_none(value)
    return text if text is None or len(text) < SHORTEST_SECRET else _clean(text, redacting, counts)


def _in_order(counts: dict[str, int]) -> Counts:
    return tuple(sorted(counts.items())) if counts else ()


def _clean(text: str, redacting: bool, counts: dict[str, int]) -> str:
    if not redacting:
        return text
    cleaned = redact(text)
    for kind, count in cleaned.counts:
        counts[kind] = counts.get(kind, 0) + count
    return cleaned.text
