"""Ask for token ids on a caller's behalf: adds fields to a request for chat completions, and removes them from its
answer.

The caller gets the answer that it would have got. An answer that is not JSON passes unchanged.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from schemas.jsontext import compact, parse

ADDED: Final = ("return_token_ids", "logprobs")
"""Fields of vLLM's and SGLang's chat completions."""

_DATA: Final = b"data:"

MAX_LINE: Final = 4 * 1024 * 1024
"""Bytes of a line of a stream. A longer line passes unchanged."""


class TokenRequest(NamedTuple):
    """A request that asks for token ids."""

    body: bytes
    """The body that is sent."""
    added: frozenset[str]
    """The fields that the caller did not send."""


def with_token_ids(body: bytes) -> TokenRequest | None:
    """Return the request with the fields that ask for token ids; None if they are there already, or cannot be added."""
    try:
        asked = parse(body)
    except (ValueError, RecursionError):
        return None
    end = body.rstrip()
    if not isinstance(asked, dict) or not asked or asked.get("n") not in (None, 1) or not end.endswith(b"}"):
        return None
    added = [name for name in ADDED if name not in asked]
    if not added or asked.get("return_token_ids") is False or asked.get("logprobs") is False:
        return None
    fields = b"".join([b',"%s":true' % name.encode() for name in added])
    return TokenRequest(end[:-1] + fields + b"}", frozenset(added))


def without_token_ids(body: bytes, added: frozenset[str]) -> bytes:
    """Return an answer without the added fields; unchanged if it is not a JSON object."""
    try:
        answer = parse(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(answer, dict) or not _take_out(answer, added):
        return body
    return compact(answer).encode()


class EventFilter:
    """Removes the added fields from a stream of events, line by line."""

    def __init__(self, added: frozenset[str]) -> None:
        self._added = added
        self._waiting = bytearray()
        self._passing = False
        """Whether the rest of an oversized line passes unchanged."""

    def take(self, piece: bytes) -> bytes:
        """Return the lines that are complete."""
        self._waiting += piece
        end = self._waiting.rfind(b"\n") + 1
        made = bytearray()
        if end:
            lines = bytes(self._waiting[:end]).splitlines(keepends=True)
            del self._waiting[:end]
            if self._passing:
                made += lines.pop(0)
                self._passing = False
            for line in lines:
                made += self._line(line)
        if self._passing or len(self._waiting) > MAX_LINE:
            made += self._waiting
            self._waiting.clear()
            self._passing = True
        return bytes(made)

    def end(self) -> bytes:
        """Return the remaining bytes."""
        left = bytes(self._waiting)
        self._waiting.clear()
        return left if self._passing else self._line(left)

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(_DATA) or (b"token_ids" not in line and b"logprobs" not in line):
            return line
        text = line[len(_DATA) :]
        bare = text.strip()
        made = without_token_ids(bare, self._added)
        if made is bare:
            return line
        space = text[: len(text) - len(text.lstrip(b" "))]
        return _DATA + space + made + line[len(line.rstrip(b"\r\n")) :]


def _take_out(answer: dict[str, Any], added: frozenset[str]) -> bool:
    """Remove the added fields from an answer; return whether there were any."""
    changed = False
    choices = answer.get("choices")
    parts = [answer, *[each for each in choices if isinstance(each, dict)]] if isinstance(choices, list) else [answer]
    for part in parts:
        for name in ("prompt_token_ids", "token_ids") if "return_token_ids" in added else ():
            changed |= part.pop(name, part) is not part
        if "logprobs" in added and part.get("logprobs") is not None:
            part["logprobs"] = None
            changed = True
    return changed


def tokens_apart(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a completion without its lists of tokens, which a capture keeps by themselves. Log-probabilities contain
    each token's text: a secret split into pieces, which redaction would not find.
    """
    lists = ("prompt_token_ids", "token_ids", "logprobs")
    kept = {name: value for name, value in response.items() if name not in lists}
    choices = response.get("choices")
    if isinstance(choices, list):
        kept["choices"] = [
            {name: value for name, value in each.items() if name not in lists} if isinstance(each, dict) else each
            for each in choices
        ]
    return kept
