"""Messages that Claude Code writes in the model's place: API errors, and text that the model receives as its own."""

SYNTHETIC = "<synthetic>"
"""The model name in such messages."""

_API_ERROR = "API Error"

_OUT_OF_ROOM = ("Prompt is too long", "API Error: Claude's response exceeded")
"""API errors that count as the run's own failure: context or answer exceeded the model's limit."""


def is_api_error(text: str) -> bool:
    """Return whether the text is an API error."""
    return text.startswith((_API_ERROR, *_OUT_OF_ROOM))


def end_of_error(text: str) -> str:
    """Return the end of a branch whose last message is an API error."""
    return "failed" if text.startswith(_OUT_OF_ROOM) else "infra_error"
