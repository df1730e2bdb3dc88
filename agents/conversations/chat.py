"""Messages and model calls of a conversation, kept in full, redacted, while their rollout is open."""

from typing import Final, final

from agents.conversations.held_text import HeldText, whole
from agents.conversations.tokens import HeldTokens

NO_TOOLS: Final = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
"""SHA-256 of an empty list of tools."""


@final
class AskedTool:
    """A tool call inside an assistant message."""

    __slots__ = ("arguments", "arguments_digest", "call_id", "malformed", "name")

    def __init__(self, call_id: str, name: str, arguments: str, arguments_digest: str, malformed: bool) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        """Whether the arguments are not a JSON object."""
        self.arguments_digest = arguments_digest
        """SHA-256 of the canonical JSON of the raw arguments."""
        self.malformed = malformed
        """Whether the arguments are not a JSON object."""


@final
class Told:
    """A message."""

    __slots__ = (
        "agent", "content", "is_error", "key", "message_id", "name", "output_bytes", "output_digest", "parts", "reasoning",
        "removed", "role", "size", "tool_call_id", "tools",
    )  # fmt: skip

    def __init__(
        self,
        role: str,
        content: str | HeldText | None,
        *,
        message_id: str = "",
        agent: str | None = None,
        parts: str | None = None,
        reasoning: str | None = None,
        tools: tuple[AskedTool, ...] = (),
        tool_call_id: str | None = None,
        name: str | None = None,
        is_error: bool = False,
        output_digest: str = "",
        output_bytes: int = 0,
        key: bytes = b"",
        size: int = 0,
        removed: bool = False,
    ) -> None:
        self.role = role
        self.content = content
        self.message_id = message_id
        self.agent = agent
        self.parts = parts
        """The parts of a content that is more than one text, as JSON."""
        self.reasoning = reasoning
        self.tools = tools
        """The calls of an assistant."""
        self.tool_call_id = tool_call_id
        self.name = name
        self.is_error = is_error
        self.output_digest = output_digest
        """Of a tool message: SHA-256 of its raw text."""
        self.output_bytes = output_bytes
        self.key = key
        """SHA-256 of everything that a model sees of it: messages with equal keys are equal."""
        self.size = size
        """Bytes of this object."""
        self.removed = removed
        """Whether redaction removed anything from it."""

    @property
    def text(self) -> str | None:
        """The content as text."""
        return None if self.content is None else whole(self.content)


@final
class Asked:
    """A model call."""

    __slots__ = (
        "add", "after", "agent", "cached_tokens", "call_id", "input_tokens", "keep", "model", "output_tokens", "policy_version",
        "removed", "response", "tokens", "tokens_left_out", "tools", "tools_digest",
    )  # fmt: skip

    def __init__(
        self,
        call_id: str,
        after: str | None,
        keep: int,
        add: tuple[str, ...],
        response: str | None,
        *,
        agent: str | None = None,
        model: str | None = None,
        tools: str | None = None,
        tools_digest: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        tokens: HeldTokens | None = None,
        tokens_left_out: str | None = None,
        policy_version: str | None = None,
        removed: bool = False,
    ) -> None:
        self.call_id = call_id
        self.after = after
        self.keep = keep
        self.add = add
        self.response = response
        """Id of the assistant message in the response; None for a call that failed."""
        self.agent = agent
        self.model = model
        self.tools = tools
        """The tools offered, as JSON text; None if the call does not record them."""
        self.tools_digest = tools_digest
        """SHA-256 of the canonical JSON of the raw tools; also where the call only names the digest."""
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.cached_tokens = cached_tokens
        self.tokens = tokens
        """Its tokens as the engine returned them."""
        self.tokens_left_out = tokens_left_out
        """Why the tokens were dropped, if it had any."""
        self.policy_version = policy_version
        self.removed = removed
        """Whether redaction removed anything from its tools."""

    @property
    def offers_tools(self) -> bool:
        """Whether the model was offered any tool."""
        return self.tools_digest is not None and self.tools_digest != NO_TOOLS


@final
class Uttered:
    """A turn of a transcript: a user's, an assistant's, or an assistant's reasoning; or context."""

    __slots__ = ("before_task", "role", "said", "step", "text", "what")

    def __init__(
        self, what: str, text: str | HeldText, step: int | None, before_task: bool, said: str | None, role: str = "user"
    ) -> None:
        self.what = what
        """user, context, assistant or reasoning."""
        self.text = text
        self.step = step
        self.before_task = before_task
        """An assistant's words before the task: a greeting."""
        self.said = said
        """The raw text, if emission version 1 reads the event as an utterance of the model."""
        self.role = role
        """The role of the context: user, system or developer."""


BAD_EVENT: Final = "bad_event"
"""The code of a message or model call that cannot be read."""


@final
class Odd:
    """An event that rows cannot carry."""

    __slots__ = ("code", "said", "step")

    def __init__(self, code: str, said: str | None, step: int | None) -> None:
        self.code = code
        """Why."""
        self.said = said
        """The raw text, if emission version 1 reads it as an utterance of the model."""
        self.step = step
