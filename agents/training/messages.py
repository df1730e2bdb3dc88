"""A branch as chat messages, in the shape of OpenAI and TRL.

system?, user (the task), then for every model turn one assistant message with all its parallel calls and one tool message
for each of them, then the final answer, unless a reader would see nothing of it. Call ids are numbered by position, so that
equal beginnings are equal messages.
"""

import re
from collections.abc import Iterable
from typing import Final

from agents.training.text_overlap import INVISIBLE
from schemas.branches import BranchCall, BranchRecord
from schemas.codec.maker import unchecked
from schemas.lifecycle import RolloutOpened
from schemas.training import FunctionCall, Message, ToolCall

_message: Final = unchecked(Message)
_tool_call: Final = unchecked(ToolCall)
_function: Final = unchecked(FunctionCall)

NO_RESULT = "[no result was recorded]"
"""A call that was never answered still needs its tool message: loaders refuse a conversation without it."""


class Conversation:
    """The whole conversation, and where the agent begins to speak."""

    __slots__ = ("completion", "messages", "prompt", "says_something")

    def __init__(self, prompt: tuple[Message, ...], completion: tuple[Message, ...]) -> None:
        self.prompt = prompt
        """What the agent was given."""
        self.completion = completion
        """What it did."""
        self.messages = prompt + completion
        self.says_something = bool(completion)
        """Whether it says or calls anything: a blank answer is left out, and every turn has a call."""


def given_messages(task: str, opened: RolloutOpened | None) -> tuple[Message, ...]:
    """What an agent is given before it begins."""
    user = _message(role="user", content=task)
    if opened is not None and opened.system_prompt:
        return _message(role="system", content=opened.system_prompt), user
    return (user,)


def conversation(branch: BranchRecord, given: tuple[Message, ...], *, turn_text: bool = True) -> Conversation:
    """The messages of a branch; `given` are those that it began with."""
    messages: list[Message] = []
    position = 0
    for calls in _turns(branch.tool_calls):
        messages.append(_assistant(calls, position, turn_text=turn_text))
        for call in calls:
            messages.append(
                _message(role="tool", content=tool_content(call), tool_call_id=f"call_{position}", name=call.name)
            )
            position += 1
    if not is_blank(branch.final_answer):
        messages.append(_message(role="assistant", content=branch.final_answer))
    return Conversation(given, tuple(messages))


def _turns(calls: Iterable[BranchCall]) -> list[list[BranchCall]]:
    """The calls that were made, those of one turn together."""
    turns: list[list[BranchCall]] = []
    for call in calls:
        if not call.paired:
            continue
        if turns and turns[-1][-1].turn == call.turn:
            turns[-1].append(call)
        else:
            turns.append([call])
    return turns


def _assistant(calls: list[BranchCall], position: int, *, turn_text: bool) -> Message:
    said = [call.text for call in calls if call.text] if turn_text else []
    asked = [
        _tool_call(id=f"call_{at}", function=_function(name=call.name, arguments=call.arguments))
        for at, call in enumerate(calls, start=position)
    ]
    return _message(role="assistant", content="\n\n".join(said) or None, tool_calls=tuple(asked))


def tool_content(call: BranchCall) -> str:
    """What the tool message says: the summary, the error, both, or that nothing came."""
    if call.output_digest is None:
        return NO_RESULT
    parts = [] if call.output_summary is None else [call.output_summary]
    if call.error is not None:
        parts.append(
            f"error {call.error.code}: {call.error.message}" if call.error.code else f"error: {call.error.message}"
        )
    return "\n".join(parts) if parts else "null"


def has_content(completion: Iterable[Message]) -> bool:
    """Whether a completion says or calls anything."""
    return any(each.role == "assistant" and (each.tool_calls or not is_blank(each.content)) for each in completion)


_VISIBLE: Final = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f\u2800{''.join(map(chr, INVISIBLE))}]")
"""Anything but white space, control characters, the blank of Braille, and what has no width."""


def is_blank(text: str | None) -> bool:
    """Whether a reader sees nothing of a text: there is none, or it is of white space and invisible characters only."""
    if not text:
        return True
    # Nearly all texts begin with a letter or a sign of ASCII: the others are searched.
    return not "!" <= text[0] <= "~" and _VISIBLE.search(text) is None


class Pair:
    """Two conversations as a preference: what they share, up to just before an assistant message, and how each goes on."""

    def __init__(self, one: Conversation, other: Conversation) -> None:
        self._one = one
        self._other = other
        self._alike = _alike(one.messages, other.messages)
        longest = one.messages if len(one.messages) >= len(other.messages) else other.messages
        cut = self._alike
        while cut > 0 and not (cut < len(longest) and longest[cut].role == "assistant"):
            cut -= 1
        self.prompt = one.messages[:cut]
        self.chosen = one.messages[cut:]
        self.rejected = other.messages[cut:]

    def unfit(self) -> str | None:
        """Why nothing can be learnt from it; None when something can."""
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
    """How many messages both begin with."""
    shared = 0
    for left, right in zip(one, other):  # noqa: B905 - one may go on
        if left is not right and vars(left) != vars(right):
            break
        shared += 1
    return shared


def _worth_choosing(completion: tuple[Message, ...]) -> bool:
    """A chosen completion ends in a non-empty answer or contains tool calls."""
    last = completion[-1]
    return (last.role == "assistant" and not is_blank(last.content)) or any(each.tool_calls for each in completion)
