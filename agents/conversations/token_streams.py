"""The token streams of a branch's conversations: joined where each prompt begins with all tokens before it, separate where not.

Nothing is ever tokenised here. A stream ends before the first message from which redaction removed anything: its ids would give that
back. So no stream decodes to a text that its messages do not show.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from agents.conversations.chat import Asked, Told
from agents.conversations.sequences import Sequence as Conversation
from agents.conversations.sequences import SequenceCall
from agents.conversations.tokens import MISSING, WIDTH, unpack_ids
from agents.redaction.redaction import redact
from schemas.training import LeftOut, PolicySpan, TokenStream

REDACTED: Final = "tokens_redacted"
DIFFER: Final = "tokens_differ"
"""The prompt does not match its digest: the earlier call that it continues is not on the log, or is a different one."""
INCOMPLETE: Final = "tokens_incomplete"
"""The call has tokens, but another call of its conversation has none."""
REASONING: Final = "reasoning_dropped"

JOINT: Final = 512
"""Characters searched on each side of the border of two messages, for secrets that cross it."""


class Streams(NamedTuple):
    """The tokens of one conversation."""

    streams: tuple[TokenStream, ...] = ()
    retokenised: bool | None = None
    """Whether there are several streams because they do not join; None if there is none."""
    left_out: tuple[LeftOut, ...] = ()
    """Calls that are in no stream, by reason."""


NO_STREAMS: Final = Streams()


def streams_of(
    conversations: Sequence[Conversation], calls: Sequence[Asked], *, redacting: bool, reasoning: bool
) -> tuple[Streams, ...]:
    """Return the streams of each conversation; `calls` are all of the branch, in the order of its log.

    Without `reasoning`, conversations that contain reasoning have no streams: ids would reveal it.
    """
    if all(call.tokens is None and call.tokens_left_out is None for call in calls):
        return (NO_STREAMS,) * len(conversations)
    building = [_Building(each, redacting=redacting, reasoning=reasoning) for each in conversations]
    places = {each.call.call_id: made for made in building for each in made.conversation.calls}
    for call, prompt in _prompts(calls):
        made = places.get(call.call_id)
        if made is not None:
            made.take(call, prompt)
    return tuple([each.end() for each in building])


def _prompts(calls: Sequence[Asked]) -> Iterable[tuple[Asked, bytes | None]]:
    """Each call with the ids of its whole prompt; None if they are not known. Ids are kept while a later call continues
    with them.
    """
    needed = Counter(call.after for call in calls if call.tokens is not None and call.tokens.keep)
    known: dict[str, bytes] = {}
    for call in calls:
        prompt = None
        if call.tokens is not None:
            prompt = call.tokens.prompt(known.get(call.after) if call.after is not None else None)
            if call.tokens.keep:
                needed[call.after] -= 1
                if call.after is not None and not needed[call.after]:
                    known.pop(call.after, None)
            if prompt is not None and needed[call.call_id]:
                known[call.call_id] = prompt + call.tokens.ids
        yield call, prompt


class _Building:
    """The streams of one conversation, call by call."""

    def __init__(self, conversation: Conversation, *, redacting: bool, reasoning: bool) -> None:
        self.conversation = conversation
        self._left: Counter[str] = Counter()
        self._streams: list[_Stream] = []
        usable = {each.call.call_id: each for each in conversation.calls}
        drops = not reasoning and any(each.reasoning for each in conversation.messages)
        until = conversation.removed_from
        if redacting and not drops:
            until = _first_removed(conversation.messages, until)
        for each in conversation.calls:
            why = REASONING if drops else REDACTED if until is not None and each.response >= until else None
            if why is not None:
                del usable[each.call.call_id]
                if each.call.tokens is not None:
                    self._left[why] += 1
        self._usable: dict[str, SequenceCall] = usable
        self._n_lacking = 0

    def take(self, call: Asked, prompt: bytes | None) -> None:
        """Add the next call."""
        if call.call_id not in self._usable:
            return
        if call.tokens is None or prompt is None:
            self._left[DIFFER if call.tokens is not None else call.tokens_left_out or MISSING] += 1
            self._n_lacking += 1
            return
        last = self._streams[-1] if self._streams else None
        if last is None or not last.goes_on(call, prompt):
            last = _Stream(call)
            self._streams.append(last)
        last.add(call, prompt)

    def end(self) -> Streams:
        """Return the streams: none if any call lacks its tokens."""
        if self._n_lacking:
            whole = len(self._usable) - self._n_lacking
            self._left[INCOMPLETE] += whole
            self._streams = []
        left = tuple([LeftOut(reason=reason, calls=count) for reason, count in sorted((+self._left).items())])
        if [each.reason for each in left] == [MISSING]:  # the call claims no tokens
            left = ()
        made = tuple([each.made() for each in self._streams])
        return Streams(made, len(made) > 1 if made else None, left)


class _Stream:
    """A stream while calls may go on with it."""

    def __init__(self, first: Asked) -> None:
        self._tokenizer = None if first.tokens is None else first.tokens.tokenizer
        self._ids = b""
        self._mask: list[int] = []
        self._logprobs: list[float] | None = []
        self._versions: list[PolicySpan] = []

    def goes_on(self, call: Asked, prompt: bytes) -> bool:
        """Whether a prompt begins with all tokens so far."""
        named = None if call.tokens is None else call.tokens.tokenizer
        return prompt.startswith(self._ids) and (named is None or self._tokenizer in (None, named))

    def add(self, call: Asked, prompt: bytes) -> None:
        """Add the new part of the prompt, and the response."""
        assert call.tokens is not None
        ids, logprobs = call.tokens.ids, call.tokens.logprobs()
        self._tokenizer = self._tokenizer or call.tokens.tokenizer
        self._mask += [0] * ((len(prompt) - len(self._ids)) // WIDTH)
        first = len(self._mask)
        self._mask += [1] * (len(ids) // WIDTH)
        self._ids = prompt + ids
        self._logprobs = None if self._logprobs is None or logprobs is None else self._logprobs + logprobs
        if ids:
            self._versions.append(
                PolicySpan(first=first, last=len(self._mask) - 1, version=call.policy_version)
            )  # fmt: skip

    def made(self) -> TokenStream:
        """Return the stream."""
        return TokenStream(
            token_ids=tuple(unpack_ids(self._ids)),
            loss_mask=tuple(self._mask),
            logprobs=tuple(self._logprobs or ()),
            policy_versions=tuple(self._versions),
            tokenizer=self._tokenizer,
        )


def _first_removed(messages: Sequence[Told], until: int | None) -> int | None:
    """The position of the first message from which anything was removed, or whose end and the next one's beginning are a secret."""
    before, place = "", 0
    for position, told in enumerate(messages[:until]):
        for text in _texts(told):
            if before and text and _across(before[-JOINT:], text[:JOINT]):
                return place
            if text:
                before, place = text, position
    return until


def _across(end: str, beginning: str) -> bool:
    """Whether redaction finds more in two joined texts than in each of them."""
    found = sum(count for _, count in redact(end + beginning).counts)
    return found > 0 and found > sum(count for text in (end, beginning) for _, count in redact(text).counts)


def _texts(told: Told) -> Iterable[str]:
    """All texts of a message, in the order in which models write them."""
    yield told.reasoning or ""
    yield told.text or ""
    for tool in told.tools:
        yield tool.arguments
