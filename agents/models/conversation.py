"""The messages that go to a model and come back from it. A message has the fields of the log's `message` event, without its id.

Arguments of a call stay the text that the model wrote. `parsed` reads them; text that is no JSON object is never replaced.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from schemas.jsontext import compact, parse_object

Role = Literal["system", "developer", "user", "assistant", "tool"]

INVALID_JSON = "INVALID_JSON"
"""The key for arguments that are not a JSON object, when they are sent back: the Messages API takes objects only, and
servers of chat completions answer with 400 to a history that has anything else.
"""


class Part(NamedTuple):
    """A part of a message's content. Media stay outside the log; this is their digest."""

    type: Literal["text", "image", "audio", "file", "other"]
    text: str = ""
    digest: str = ""
    media_type: str = ""
    bytes: int | None = None
    """Length of the media."""


class ToolCall(NamedTuple):
    """A tool call requested by the model."""

    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""

    def parsed(self) -> dict[str, Any]:
        """Return the arguments as an object. Raises ValueError if they are not a JSON object."""
        return parse_object(self.arguments)


class Message(NamedTuple):
    """One message of a conversation."""

    role: Role
    content: str | tuple[Part, ...] = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """In a tool's message: the call it answers."""
    name: str = ""
    """In a tool's message: the name of the tool."""
    is_error: bool = False
    extra: Mapping[str, Any] = {}
    """The provider's own blocks, such as signatures of thinking; sent back unchanged, and in no training row."""

    @property
    def text(self) -> str:
        """The text of the content, without other parts."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if part.type == "text")


class ToolDefinition(NamedTuple):
    """A tool that is offered to a model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema."""


def sendable(message: Message) -> Message:
    """Return the message as it is sent back: arguments that are not a JSON object are wrapped in one, under
    `INVALID_JSON`.
    """
    if all(_is_object(call) for call in message.tool_calls):
        return message
    calls = tuple(
        call if _is_object(call) else call._replace(arguments=compact({INVALID_JSON: call.arguments}))
        for call in message.tool_calls
    )
    return message._replace(tool_calls=calls)


def _is_object(call: ToolCall) -> bool:
    try:
        call.parsed()
    except ValueError:
        return False
    return True
