"""The supported model APIs: which one a path belongs to, and which field of its requests is the conversation."""

import re
from typing import Literal, get_args
from urllib.parse import unquote

Protocol = Literal["openai-chat", "openai-responses", "openai-completions", "anthropic-messages"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

_ENDINGS: tuple[tuple[str, Protocol], ...] = (
    ("/chat/completions", "openai-chat"),
    ("/completions", "openai-completions"),
    ("/responses", "openai-responses"),
    ("/messages", "anthropic-messages"),
)

_SLASHES = re.compile(r"/+")

HISTORY: dict[Protocol, str] = {
    "openai-chat": "messages",
    "openai-responses": "input",
    "openai-completions": "prompt",
    "anthropic-messages": "messages",
}
"""The field of a request that grows from call to call."""


def protocol_of(method: str, path: str) -> Protocol | None:
    """The protocol of a request; None if it is forwarded without being captured (models, embeddings, count_tokens,
    ...).
    """
    if method != "POST":
        return None
    plain = (
        _SLASHES.sub("/", unquote(path)).rstrip("/ ").lower()
    )  # as lenient as any server: no spelling passes uncaptured
    return next((protocol for ending, protocol in _ENDINGS if plain.endswith(ending)), None)
