"""The messages of a conversation as ATIF steps: every assistant message is an agent step, with the results of its calls.

A message that was given to the model is `is_copied_context`, which keeps it out of training. Media are named by their digests.
"""

from typing import Any

from agents.formats.chat import arguments, has_media, is_given, message
from agents.formats.shape import PLAIN, Speech
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


def conversation_steps(row: PpoRecord) -> list[dict[str, Any]]:
    """The steps of a row, in order, without their numbers."""
    steps: list[dict[str, Any]] = []
    for said in (*row.prompt, *row.completion):
        if said.role == "tool":
            _observe(steps, said)
        else:
            steps.append(_step(said, counted=row.fidelity == "exact"))
    return steps


def _step(said: Message, *, counted: bool) -> dict[str, Any]:
    shown = message(said, _SPEECH, PLAIN)
    step: dict[str, Any] = {"source": _SOURCES[shown["role"]], "message": _content(said)}
    if "reasoning_content" in shown:
        step["reasoning_content"] = shown["reasoning_content"]
    if said.tool_calls:
        step["tool_calls"] = [
            {
                "tool_call_id": call.id,
                "function_name": call.function.name,
                "arguments": object_of(call.function.arguments),
            }
            for call in said.tool_calls
        ]
    if is_given(said):
        step["is_copied_context"] = True
    elif said.role == "assistant" and counted:
        step["llm_call_count"] = 1
    return step


def _observe(steps: list[dict[str, Any]], said: Message) -> None:
    """Add a result to the step that called for it; one that no step called for is a step of the system."""
    result: dict[str, Any] = {"content": _content(said)}
    for step in reversed(steps):
        if any(call["tool_call_id"] == said.tool_call_id for call in step.get("tool_calls", ())):
            step.setdefault("observation", {"results": []})["results"].append(
                {"source_call_id": said.tool_call_id, **result}
            )
            return
    steps.append({"source": "system", "message": "", "observation": {"results": [result]}})


def _content(said: Message) -> str | list[dict[str, Any]]:
    if not has_media(said):
        return said.content or ""
    return [
        {"type": "text", "text": part["text"]}
        if part["type"] == "text"
        else {"type": part["type"], "source": {"media_type": part["media_type"], "path": f"sha256:{part['digest']}"}}
        for part in parse(said.parts or "")
    ]


def unfit(row: PpoRecord) -> bool:
    """Whether a conversation refers to media that the format does not know."""
    parts = [part for said in (*row.prompt, *row.completion) if has_media(said) for part in parse(said.parts or "")]
    return any(
        part["type"] != "text"
        and not (part.get("digest") and part.get("media_type") in MEDIA_TYPES.get(part["type"], ()))
        for part in parts
    )


def object_of(text: str) -> dict[str, Any]:
    """A call's arguments as an object; a value that is none is wrapped."""
    value = arguments(text)
    return value if isinstance(value, dict) else {"value": value}
