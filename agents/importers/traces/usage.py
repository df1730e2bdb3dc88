"""Read the token counts of model calls in all providers' spellings, and sum them over a branch."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.importers.traces.fields import number_in, object_in, whole_in


class Usage(NamedTuple):
    """Tokens of one call; None if unknown."""

    input: int | None = None
    """Tokens of the prompt, including cached ones."""
    output: int | None = None
    cached: int | None = None
    usd: float | None = None
    reasoning: int | None = None
    """Tokens of the response that were spent on reasoning."""


NONE = Usage()


def read_usage(value: Any) -> Usage:
    """Read a provider's counts.

    Anthropic's input excludes cached tokens, so they are added. OpenAI's input includes them.
    """
    if not isinstance(value, Mapping):
        return NONE
    cached = whole_in(
        value, "cache_read_input_tokens", "cacheRead", "cached_input_tokens", "cached_tokens", "input_token_count_cached",
        "input_tokens_cache_read", "cachedContentTokenCount", "cached_content_token_count",
        "cache_read_input_token_count",
    )  # fmt: skip
    made = whole_in(value, "cache_creation_input_tokens", "cacheWrite")
    counted = whole_in(
        value, "input_tokens", "prompt_tokens", "prompt_token_count", "promptTokenCount", "input_token_count", "input"
    )
    if counted is not None and ("cache_read_input_tokens" in value or "cacheRead" in value):
        counted += (cached or 0) + (made or 0)
    if cached is None:
        for name in ("input_tokens_details", "prompt_tokens_details", "input_token_details"):
            found = whole_in(object_in(value, name), "cached_tokens", "cache_read")
            cached = found if cached is None else cached
    output = whole_in(
        value,
        "output_tokens",
        "completion_tokens",
        "candidates_token_count",
        "candidatesTokenCount",
        "output_token_count",
        "output",
    )
    thought = whole_in(value, "thoughts_token_count", "thoughtsTokenCount")
    if thought is not None:  # Gemini counts them beside those of the candidates, and tools' texts beside the prompt
        output = (output or 0) + thought
    tools = whole_in(value, "tool_use_prompt_token_count", "toolUsePromptTokenCount")
    if tools is not None:
        counted = (counted or 0) + tools
    for name in ("output_tokens_details", "completion_tokens_details", "output_token_details"):
        found = whole_in(object_in(value, name), "reasoning_tokens", "reasoning")
        thought = found if thought is None else thought
    return Usage(counted, output, cached, number_in(value, "cost", "total_cost", "cost_usd"), thought)


class Spent:
    """The running sum of the counts."""

    def __init__(self) -> None:
        self._sum = NONE
        self._told: dict[str, Any] = {}

    def add(self, usage: Usage) -> dict[str, Any]:
        """Add a call and return the cumulative fields of its `model_done`.

        Unknown counts are not counted as zero: they add nothing.
        """
        if usage is NONE or usage == NONE:
            return dict(self._told)
        known = zip(self._sum, usage, strict=True)
        self._sum = Usage(*(old if new is None else (old or 0) + new for old, new in known))  # type: ignore[arg-type]
        names = ("inputTokens", "outputTokens", "cacheReadTokens", "estimatedUsd")
        self._told = {name: value for name, value in zip(names, self._sum, strict=False) if value is not None}
        return dict(self._told)
