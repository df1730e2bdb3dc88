"""The messages of a story as ATIF steps: every assistant message is an agent step, with the results of its calls.

A message that was given to the model is `is_copied_context`, which keeps it out of training. Media are named by their digests.
`extra` has the values without a field in the format; `braid import` reads it back.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from agents.formats.chat import arguments, has_media, is_given, message
from agents.formats.shape import PLAIN, Speech
from agents.formats.story import Said, unique
from schemas.jsontext import parse
from schemas.training import Message, PpoRecord

_SPEECH = Speech(media=True)

_SOURCES = {"system": "system", "user": "user", "assistant": "agent", "tool": "system"}

MEDIA_TYPES = {
    "image": {"image/jpeg", "image/png", "image/gif", "image/webp"},
    "audio": {
        "audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm", "audio/aiff",
    },
}  # fmt: skip
"""The media types that the format knows."""


def story_steps(said: Iterable[Said], *, counted: bool) -> list[dict[str, Any]]:
    """The steps of a story, in order, without their numbers; `counted`: each agent step is known to be one model call."""
    steps: list[dict[str, Any]] = []
    for each in said:
        if each.message.role == "tool":
            _observe(steps, each)
        else:
            steps.append(_step(each, counted=counted))
    return steps


def _step(said: Said, *, counted: bool) -> dict[str, Any]:
    told = said.message
    shown = message(told, _SPEECH, PLAIN)
    step: dict[str, Any] = {"source": _SOURCES[shown["role"]], "message": _content(told), **at(said.time)}
    if "reasoning_content" in shown:
        step["reasoning_content"] = shown["reasoning_content"]
    if told.tool_calls:
        ids = unique([call.id for call in told.tool_calls])
        step["tool_calls"] = [
            _call(call_id, call.function.name, call.function.arguments)
            for call_id, call in zip(ids, told.tool_calls, strict=True)
        ]
    if is_given(told) or said.context:
        step["is_copied_context"] = True
    elif told.role == "assistant" and counted:
        step["llm_call_count"] = 1
    extra = _media(told) | ({"role": told.role} if told.role == "developer" else {})
    return step | {"extra": extra} if extra else step


def _call(call_id: str, name: str, text: str) -> dict[str, Any]:
    value = arguments(text)
    call: dict[str, Any] = {"tool_call_id": call_id, "function_name": name, "arguments": value}
    return (
        call if isinstance(value, dict) else call | {"arguments": {"value": value}, "extra": {"arguments_text": text}}
    )


def _observe(steps: list[dict[str, Any]], said: Said) -> None:
    """Add a result to the step with its call; a result without a call becomes a step of the system."""
    told = said.message
    flags = {"is_error": said.failed, "is_value": said.is_value, "is_null": told.content is None}
    extra = {name: True for name, is_set in flags.items() if is_set} | _media(told)
    result: dict[str, Any] = {"content": _content(told)} | ({"extra": extra} if extra else {})
    for step in reversed(steps):
        is_asked = any(call["tool_call_id"] == told.tool_call_id for call in step.get("tool_calls", ()))
        if is_asked and (said.context or not step.get("is_copied_context")):
            step.setdefault("observation", {"results": []})["results"].append(
                {"source_call_id": told.tool_call_id, **result}
            )
            return
    if told.tool_call_id is not None:
        result["extra"] = extra | {"call_id": told.tool_call_id}
    step = {"source": "system", "message": "", **at(said.time), "observation": {"results": [result]}}
    steps.append(step | {"is_copied_context": True} if said.context else step)


def at(milliseconds: int | None) -> dict[str, str]:
    """The time of a step, if it is known."""
    if milliseconds is None or not 0 <= milliseconds < 253_402_300_800_000:
        return {}
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return {"timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def _media(said: Message) -> dict[str, Any]:
    """All references of a message, because the format itself has few kinds of media."""
    return {"media": [part for part in parse(said.parts or "") if not _is_text(part)]} if has_media(said) else {}


def _content(said: Message) -> str | list[dict[str, Any]]:
    if not has_media(said):
        return said.content or ""
    return [
        {"type": "text", "text": part["text"]}
        if _is_text(part)
        else {"type": part["type"], "source": {"media_type": part["media_type"], "path": f"sha256:{part['digest']}"}}
        for part in parse(said.parts or "")
        if _is_text(part) or _is_known(part)
    ]


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") == "text" and "text" in part


def _is_known(part: dict[str, Any]) -> bool:
    return bool(part.get("digest")) and part.get("media_type") in MEDIA_TYPES.get(part["type"], ())


def unfit(row: PpoRecord) -> bool:
    """Whether a conversation refers to media that the format does not know."""
    parts = [part for said in (*row.prompt, *row.completion) if has_media(said) for part in parse(said.parts or "")]
    return not all(_is_text(part) or _is_known(part) for part in parts)
