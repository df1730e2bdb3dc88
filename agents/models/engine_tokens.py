"""Token ids and log-probabilities in an engine's answer: from vLLM, SGLang, and servers with the same fields.

Only ids that the engine returned count. An answer with a missing list, or whose lists contradict each other, has no
tokens: nothing is tokenised here, and no id is looked up by its text.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

MAX_ID: Final = 2**31 - 1

_PROMPT = ("prompt_token_ids", "prompt_ids", "input_token_ids", "input_ids")
_RESPONSE = ("token_ids", "output_token_ids", "completion_token_ids", "response_token_ids", "output_ids")


def tokens_of(response: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tokens of a completion with one choice, in the form of a call's data; None unless they are complete."""
    choices = response.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return None
    choice: Mapping[str, Any] = choices[0]
    sources = [each for each in (response, choice, choice.get("message"), choice.get("meta_info"), response.get("meta_info"))
               if isinstance(each, Mapping)]  # fmt: skip
    prompt, ids = _ids(sources, _PROMPT), _ids(sources, _RESPONSE)
    pairs = _pairs(sources)
    logprobs = _logprobs(choice.get("logprobs"))
    if ids is None and pairs is not None:
        ids = [token for _, token in pairs]
    if prompt is None or ids is None:
        return None
    if pairs is not None and [token for _, token in pairs] == ids:
        logprobs = [value for value, _ in pairs]
    told: dict[str, Any] = {"prompt_ids": prompt, "ids": ids}
    if logprobs is not None and len(logprobs) == len(ids):
        told["logprobs"] = logprobs
    return told


def _ids(sources: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[int] | None:
    for source in sources:
        for name in names:
            found = token_ids_in(source, name)
            if found is not None:
                return found
    return None


def token_ids_in(source: Mapping[str, Any], name: str) -> list[int] | None:
    """A list of token ids; None if a field has anything else."""
    found = source.get(name)
    return (
        found if isinstance(found, list) and all(type(each) is int and 0 <= each <= MAX_ID for each in found) else None
    )


def _logprobs(given: Any) -> list[float] | None:
    """Log-probabilities: of chat completions in `content`, of text completions in `token_logprobs`."""
    if not isinstance(given, Mapping):
        return None
    if isinstance(given.get("token_logprobs"), list):
        found = given["token_logprobs"]
    elif isinstance(given.get("content"), list):
        found = [each.get("logprob") if isinstance(each, Mapping) else None for each in given["content"]]
    else:
        return None
    return found if all(map(is_number, found)) else None


def _pairs(sources: Sequence[Mapping[str, Any]]) -> list[tuple[float, int]] | None:
    """SGLang's `output_token_logprobs`: [log-probability, id, text] for each token."""
    for source in sources:
        given = source.get("output_token_logprobs")
        if isinstance(given, list) and all(
            isinstance(each, list) and len(each) >= 2 and is_number(each[0]) and type(each[1]) is int and 0 <= each[1] <= MAX_ID
            for each in given
        ):  # fmt: skip
            return [(each[0], each[1]) for each in given]
    return None


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and isfinite(value)
