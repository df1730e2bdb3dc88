"""A branch as chat messages, in the shape of OpenAI and TRL.

system?, user (the task), then for every model turn one assistant message with all its parallel calls and one tool
message for each of them, then the final answer, unless it has no visible text. Call ids are numbered by position, so
that equal beginnings are equal messages.
"""

import re
from collections.abc import Iterable
from typing import Final

from agents.conversations.chat import Told
from agents.conversations.sequences import NotRepresentableError
from agents.training.text_overlap import INVISIBLE
from schemas.branches import BranchCall, BranchRecord
from schemas.codec.maker import unchecked
from schemas.jsontext import parse
from schemas.lifecycle import RolloutOpened
from schemas.training import FunctionCall, Message, ToolCall

_message: Final = unchecked(Message)
_tool_call: Final = unchecked(ToolCall)
_function: Final = unchecked(FunctionCall)

NO_RESULT = "[no result was recorded]"
"""A call that was never answered still needs its tool message: loaders refuse a conversation without it."""


class Conversation:
    """The whole conversation, and the position at which the agent begins to speak."""

    __slots__ = ("completion", "messages", "prompt", "says_something")

    def __init__(
        self, prompt: tuple[Message, ...], completion: tuple[Message, ...], says_something: bool | None = None
    ) -> None:
        self.prompt = prompt
        """The messages that the agent was given."""
        self.completion = completion
        """The messages of its run."""
        self.messages = prompt + completion
        self.says_something = bool(completion) if says_something is None else says_something
        """Whether it has text or calls. Steps always do: a blank answer is left out, and every turn has a call."""


def given_messages(task: str | None, opened: RolloutOpened | None) -> tuple[Message, ...]:
    """The messages that an agent begins with; `task` is None if it was not shown."""
    user = () if task is None else (_message(role="user", content=task),)
    if opened is not None and opened.system_prompt:
        return _message(role="system", content=opened.system_prompt), *user
    return user


def conversation(
    branch: BranchRecord,
    given: tuple[Message, ...],
    *,
    turn_text: bool = True,
    trained: bool | None = None,
    calls: Iterable[BranchCall] | None = None,
) -> Conversation:
    """The messages of a branch; `given` are those that it began with. `trained` marks the agent's own messages, `calls`
    replace its calls.
    """
    messages: list[Message] = []
    position = 0
    for turn in _turns(branch.tool_calls if calls is None else calls):
        messages.append(_assistant(turn, position, turn_text=turn_text, trained=trained))
        for call in turn:
            messages.append(
                _message(role="tool", content=tool_content(call), tool_call_id=f"call_{position}", name=call.name)
            )
            position += 1
    if not is_blank(branch.final_answer):
        messages.append(_message(role="assistant", content=branch.final_answer, trained=trained))
    return Conversation(given, tuple(messages))


def _turns(calls: Iterable[BranchCall]) -> list[list[BranchCall]]:
    """The calls of the branch, grouped by turn."""
    turns: list[list[BranchCall]] = []
    for call in calls:
        if not call.paired:
            continue
        if turns and turns[-1][-1].turn == call.turn:
            turns[-1].append(call)
        else:
            turns.append([call])
    return turns


def _assistant(calls: list[BranchCall], position: int, *, turn_text: bool, trained: bool | None) -> Message:
    said = [call.text for call in calls if call.text] if turn_text else []
    asked = [
        _tool_call(id=f"call_{at}", function=_function(name=call.name, arguments=call.arguments))
        for at, call in enumerate(calls, start=position)
    ]
    return _message(role="assistant", content="\n\n".join(said) or None, tool_calls=tuple(asked), trained=trained)


def told_conversation(messages: Iterable[Told], trained: frozenset[int], *, reasoning: bool) -> Conversation:
    """A conversation from recorded messages; `trained` has the positions of the model's messages.

    Calls are numbered by position; a tool message goes to the first call of its id that has none, in the nearest
    message with such a call. Raises NotRepresentableError for a tool message without a call, for arguments that are no JSON object, and
    for content that is neither text nor media: references to it are of no use to any format.
    """
    shown: list[Message] = []
    waiting: dict[str, list[tuple[int, str]]] = {}
    n_calls = 0
    for position, told in enumerate(messages):
        answered = None
        asked: list[ToolCall] = []
        if told.parts is not None and any(part["type"] == "other" for part in parse(told.parts)):
            raise NotRepresentableError("other_content")
        for tool in told.tools:
            if tool.malformed:
                raise NotRepresentableError("malformed_arguments")
            name = f"call_{n_calls}"
            n_calls += 1
            asked.append(_tool_call(id=name, function=_function(name=tool.name, arguments=tool.arguments)))
            waiting.setdefault(tool.call_id, []).append((position, name))
        if told.role == "tool":
            calls = waiting.get(told.tool_call_id or "")
            if not calls:
                raise NotRepresentableError("unpaired_tool_message")
            nearest = next(each for each in calls if each[0] == calls[-1][0])
            calls.remove(nearest)
            answered = nearest[1]
        shown.append(
            _message(
                role=told.role,
                content=told.text,
                tool_calls=tuple(asked),
                tool_call_id=answered,
                name=told.name if told.role == "tool" else None,
                reasoning_content=told.reasoning if reasoning else None,
                trained=None if told.role != "assistant" else position in trained,
                parts=told.parts,
            )
        )
    first = min(trained, default=len(shown))
    return Conversation(tuple(shown[:first]), tuple(shown[first:]), has_content([shown[place] for place in trained]))


def has_prompt(messages: Iterable[Message]) -> bool:
    """Whether a system, developer or user message has visible text."""
    return any(each.role in ("system", "developer", "user") and _is_seen(each) for each in messages)


def _is_seen(message: Message) -> bool:
    """Whether a reader sees anything of a message's content."""
    if not is_blank(message.content):
        return True
    return message.parts is not None and any(part["type"] != "text" for part in parse(message.parts))


def tool_content(call: BranchCall) -> str:
    """The text of the tool message: the summary, the error, both, or a note that there was no result."""
    if call.output_digest is None:
        return NO_RESULT
    parts = [] if call.output_summary is None else [call.output_summary]
    if call.error is not None:
        parts.append(
            f"error {call.error.code}: {call.error.message}" if call.error.code else f"error: {call.error.message}"
        )
    return "\n".join(parts) if parts else "null"


def has_content(completion: Iterable[Message]) -> bool:
    """Whether a completion has text or calls."""
    return any(each.role == "assistant" and (each.tool_calls or _is_seen(each)) for each in completion)


_VISIBLE: Final = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f\u2800{''.join(map(chr, INVISIBLE))}]")
"""Anything but white space, control characters, the blank of Braille, and characters without width."""


def is_blank(text: str | None) -> bool:
    """Whether a text has nothing visible: it is None, or only white space and invisible characters."""
    if not text:
        return True
    # Nearly all texts begin with a letter or a sign of ASCII: the others are searched.
    return not "!" <= text[0] <= "~" and _VISIBLE.search(text) is None


class Pair:
    """Two conversations as a preference: their shared start, up to just before an assistant message, and the
    continuation of each.
    """

    def __init__(self, one: Conversation, other: Conversation) -> None:
        self._one = one
        self._other = other
        self._alike = _alike(one.messages, other.messages)
        cut = self._alike
        while cut > 0 and not _parts_at(one.messages, other.messages, cut):
            cut -= 1
        self.prompt = tuple([_given(message) for message in one.messages[:cut]])
        self.chosen = one.messages[cut:]
        self.rejected = other.messages[cut:]

    def unfit(self) -> str | None:
        """Why it is useless for training; None if it is not."""
        if not self._one.says_something or not self._other.says_something:
            return "empty_completion"
        if not self.prompt:
            return "no_shared_prompt"
        if self._alike == len(self._one.messages) == len(self._other.messages):
            return "same_completion"
        if not has_content(self.chosen) or not has_content(self.rejected):
            return "empty_completion"
        return None if _worth_choosing(self.chosen) else "empty_chosen_answer"


def _alike(one: tuple[Message, ...], other: tuple[Message, ...]) -> int:
    """How many messages are equal at the start of both."""
    shared = 0
    for left, right in zip(one, other):  # noqa: B905 - one may go on
        if left is not right and not _is_alike(left, right):
            break
        shared += 1
    return shared


def _is_alike(left: Message, right: Message) -> bool:
    """Whether two messages are equal as parts of a prompt."""
    one, other = vars(left), vars(right)
    if one == other:
        return True
    return one["trained"] is not other["trained"] and vars(_given(left)) == vars(_given(right))


def _parts_at(one: tuple[Message, ...], other: tuple[Message, ...], cut: int) -> bool:
    """Whether two conversations may diverge here: the model speaks next on both sides, unless one of them has ended."""
    following = [side[cut] for side in (one, other) if cut < len(side)]
    return bool(following) and all(each.role == "assistant" and each.trained is not False for each in following)


def _given(message: Message) -> Message:
    """The message as a part of a prompt: not in the loss."""
    return _message(**vars(message) | {"trained": False}) if message.trained else message


def _worth_choosing(completion: tuple[Message, ...]) -> bool:
    """A chosen completion ends in a non-empty answer or contains tool calls."""
    last = completion[-1]
    return (last.role == "assistant" and not is_blank(last.content)) or any(each.tool_calls for each in completion)
