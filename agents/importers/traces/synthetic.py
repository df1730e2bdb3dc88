"""Messages that Claude Code writes in the model's place: errors of the API, and words that the model is given as its own."""

SYNTHETIC = "<synthetic>"
"""The model of such messages."""

_API_ERROR = "API Error"

_OUT_OF_ROOM = ("Prompt is too long", "API Error: Claude's response exceeded")
"""Errors of the API that are the run's own end: the context, or the answer, was longer than the model takes."""


def is_api_error(text: str) -> bool:
    """Whether the words are an error of the API."""
    return text.startswith((_API_ERROR, *_OUT_OF_ROOM))


def end_of_error(text: str) -> str:
    """How a branch ends whose last message is an error of the API."""
    return "failed" if text.startswith(_OUT_OF_ROOM) else "infra_error"
