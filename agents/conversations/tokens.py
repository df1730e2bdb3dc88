"""Tokens of model calls as their engines returned them: packed for the log, checked when they are read, whole again for rows.

On the log an event's data has the SHA-256 of each list, and a typed field has the lists themselves, the prompt as a
difference to an earlier call. So the digest of an event covers its tokens, however they are packed, and a difference to
the wrong call is detected. Nothing is ever tokenised here.
"""

import sys
from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any, Final, final

from agents.conversations.held_text import LONG, HeldText, TextStore, whole
from schemas.conversation import GivenTokens
from schemas.events import PackedTokens

WIDTH: Final = 4
"""Bytes of a token's id."""

TOO_LARGE: Final = "tokens_too_large"
MISSING: Final = "tokens_missing"


class BadTokensError(Exception):
    """Tokens that contradict their event."""


def pack_ids(ids: Sequence[int]) -> bytes:
    """Return token ids as 32-bit whole numbers, the lowest byte first."""
    return _little(array("i", ids))


def unpack_ids(packed: bytes) -> list[int]:
    """Return the ids again."""
    return _read("i", packed).tolist()


def unpack_logprobs(packed: bytes, *, wide: bool) -> list[float]:
    """Return the log-probabilities, each of exactly the value that it had."""
    return _read("d" if wide else "f", packed).tolist()


def packed(prompt_ids: Sequence[int], ids: Sequence[int], logprobs: Sequence[float] | None) -> PackedTokens:
    """Return the lists, packed; log-probabilities as 32-bit floats if that loses nothing."""
    if logprobs is None:
        return PackedTokens(prompt_ids=pack_ids(prompt_ids), ids=pack_ids(ids))
    wide = array("d", logprobs)
    narrow = None
    if all(-LARGEST_NARROW <= each <= LARGEST_NARROW for each in wide):
        narrow = array("f", wide)
    exact = narrow is not None and narrow.tolist() == wide.tolist()
    chosen = narrow if exact and narrow is not None else wide
    return PackedTokens(
        prompt_ids=pack_ids(prompt_ids), ids=pack_ids(ids), logprobs=_little(chosen), wide=chosen is wide
    )  # fmt: skip


def pack_data(data: Mapping[str, Any], given: GivenTokens) -> tuple[dict[str, Any], PackedTokens | None]:
    """Return the data of a call with digests in place of its tokens, and the tokens; existing digests are kept."""
    if isinstance(given.prompt_ids, str) or isinstance(given.ids, str) or isinstance(given.logprobs, str):
        return dict(data), None
    tokens = packed(given.prompt_ids, given.ids, given.logprobs)
    digests = {"prompt_ids": _digest(tokens.prompt_ids), "ids": _digest(tokens.ids)}
    if tokens.logprobs is not None:
        digests["logprobs"] = _digest(tokens.logprobs)
    return {**data, "tokens": {**data["tokens"], **digests}}, tokens


@final
class HeldTokens:
    """The tokens of a call while its rollout is open."""

    __slots__ = ("_ids", "_logprobs", "_prompt", "keep", "prompt_digest", "tokenizer", "wide")

    def __init__(self, tokens: PackedTokens, given: GivenTokens, texts: TextStore) -> None:
        self.keep = tokens.prompt_keep
        """Ids of the prompt that an earlier call's tokens begin with."""
        self._prompt = _held(tokens.prompt_ids, texts)
        self._ids = _held(tokens.ids, texts)
        self._logprobs = None if tokens.logprobs is None else _held(tokens.logprobs, texts)
        self.wide = tokens.wide
        self.prompt_digest = str(given.prompt_ids)
        """SHA-256 of the whole prompt's ids."""
        self.tokenizer = given.tokenizer

    @property
    def ids(self) -> bytes:
        """The ids of the response."""
        return _whole(self._ids)

    def prompt(self, former: bytes | None) -> bytes | None:
        """Return the ids of the prompt, after the ids of an earlier call; None if they do not match the digest."""
        own = _whole(self._prompt)
        if self.keep:
            if former is None or len(former) < self.keep * WIDTH:
                return None
            own = former[: self.keep * WIDTH] + own
        return own if _digest(own) == self.prompt_digest else None

    def logprobs(self) -> list[float] | None:
        """The log-probability of each id of the response."""
        return None if self._logprobs is None else unpack_logprobs(_whole(self._logprobs), wide=self.wide)


def read_tokens(
    given: GivenTokens | None, tokens: PackedTokens | None, texts: TextStore, *, has_former: bool
) -> HeldTokens | None:
    """Return the tokens of a call, or None. `has_former`: whether it names an earlier call.

    Raises BadTokensError for tokens that contradict the event.
    """
    if given is None:
        if tokens is not None:
            raise BadTokensError("tokens: the data does not name them")
        return None
    if not isinstance(given.prompt_ids, str):
        if tokens is not None:
            raise BadTokensError("tokens: given twice")
        tokens = packed(given.prompt_ids, given.ids, given.logprobs)  # type: ignore[arg-type]  # the model refuses a mixture
        return HeldTokens(tokens, given.model_copy(update={"prompt_ids": _digest(tokens.prompt_ids)}), texts)
    if tokens is None:
        return None
    _check(given, tokens, has_former=has_former)
    return HeldTokens(tokens, given, texts)


def _check(given: GivenTokens, tokens: PackedTokens, *, has_former: bool) -> None:
    """Raise BadTokensError for values that are not token ids, or that do not match the digests."""
    for part in (tokens.prompt_ids, tokens.ids):
        if len(part) % WIDTH or max(part[WIDTH - 1 :: WIDTH], default=0) > 127:
            raise BadTokensError("tokens: ids are 32-bit whole numbers from 0")
    if tokens.prompt_keep and not has_former:
        raise BadTokensError("tokens: prompt_keep without an earlier call")
    if _digest(tokens.ids) != given.ids:
        raise BadTokensError("tokens: ids are not those of the digest")
    if (given.logprobs is None) != (tokens.logprobs is None):
        raise BadTokensError("tokens: logprobs are not those of the digest")
    if tokens.logprobs is not None:
        if len(tokens.logprobs) != len(tokens.ids) * (2 if tokens.wide else 1):
            raise BadTokensError("tokens: there must be one log-probability for each id")
        if _digest(tokens.logprobs) != given.logprobs:
            raise BadTokensError("tokens: logprobs are not those of the digest")
        if not all(map(isfinite, unpack_logprobs(tokens.logprobs, wide=tokens.wide))):
            raise BadTokensError("tokens: log-probabilities are finite numbers")


def _digest(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def _held(raw: bytes, texts: TextStore) -> bytes | HeldText:
    """Bytes unchanged, or in the store of long texts."""
    if len(raw) < LONG:
        return raw
    found = texts.hold(raw.decode("latin-1"))
    return raw if isinstance(found, str) else found


def _whole(raw: bytes | HeldText) -> bytes:
    return raw if isinstance(raw, bytes) else whole(raw).encode("latin-1")


LARGEST_NARROW: Final = 3.4028234663852886e38
"""The largest 32-bit floating-point number."""


def _little(numbers: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _read(kind: str, raw: bytes) -> "array[Any]":
    numbers: array[Any] = array(kind)
    numbers.frombytes(raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
