"""The stories of an exact branch: one for each sequence of its model calls; every message is in one of them.

A message shared by several sequences belongs to the first; in the others it is context. Messages that no call ever sent
(a tool's last output, a user's last words) follow the conversation that they answer.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agents.conversations.chat import Asked, Told
from agents.conversations.sequences import NotRepresentableError, Sequences, sequences_of
from agents.conversations.sequences import Sequence as Conversation
from agents.formats.story import Said, Story
from agents.formats.told_story import SOURCE, Given
from agents.summarize.event_reader import keep_slice
from agents.summarize.pieces import Answer, Kept
from schemas.events import EventFields
from schemas.training import FunctionCall, Message, ToolCall

_TOLD_BESIDE = frozenset(
    {"message", "model_call", "tool_call", "tool_result", "run_start", "final_answer", "model_done", "error"}
)
"""Kinds that messages already contain, or that are recorded separately."""


def exact_story(events: Sequence[tuple[int, EventFields]], given: Given) -> Story:
    """The main conversation, and the other ones."""
    bodies = _bodies(events, given)
    told = [body for body in bodies if isinstance(body, Told)]
    calls = [body for body in bodies if isinstance(body, Asked)]
    found = _sequences(told, calls)
    lost = Counter(event.event for _, event in events if event.event not in _TOLD_BESIDE)
    lost[SOURCE] = lost.pop("import_source", 0)
    lost["failed_model_call"] = sum(call.response is None for call in calls)
    stories = _stories(found, told, {call.response for call in calls}, given)
    main = stories[found.main]
    others = tuple(story for story in stories if story is not main)
    last = next((each.message for each in reversed(main.said) if each.message.role in ("assistant", "tool")), None)
    answers = [body.text for body in bodies if isinstance(body, Answer)]
    said = main.said
    if answers and (last is None or last.role != "assistant" or (last.content or "").strip() != answers[-1].strip()):
        last = Message(role="assistant", content=answers[-1], trained=True)
        said = (*said, Said(last))
    has_answer = last is not None and last.role == "assistant" and not last.tool_calls and bool(last.content)
    return replace(main, said=said, others=others, has_answer=has_answer, lost=+lost)


def _bodies(events: Sequence[tuple[int, EventFields]], given: Given) -> list[Kept]:
    """The content of the events; events without a gap are read together, since a message may be named by its seq."""
    bodies: list[Kept] = []
    run: list[EventFields] = []
    for place, (seq, event) in enumerate(events):
        run.append(event)
        if place + 1 == len(events) or events[place + 1][0] != seq + 1:
            piece = keep_slice(run, seq + 1 - len(run), 0, redacting=given.redacting)
            bodies += [each.body for each in piece.noted]
            run = []
    return bodies


def _sequences(told: Sequence[Told], calls: Sequence[Asked]) -> Sequences:
    """The sequences; if calls have broken references, all messages in their order are one sequence."""
    known = {call.tools_digest: call.tools for call in calls if call.tools_digest and call.tools is not None}
    digests = {call.tools_digest: "" for call in calls if call.tools_digest}
    try:
        return sequences_of(told, calls, digests | known)
    except NotRepresentableError:
        spoken = frozenset(place for place, each in enumerate(told) if each.role == "assistant")
        return Sequences((Conversation(tuple(told), spoken, None, None, None),), 0)


def _stories(found: Sequences, told: Sequence[Told], responses: set[str | None], given: Given) -> list[Story]:
    taken: set[str] = set()
    stories: list[Story] = []
    for number, sequence in enumerate(found.all):
        held = []
        for place, each in enumerate(sequence.messages):
            is_own = each.message_id not in taken or (place == 0 and each.role in ("system", "developer"))
            taken.add(each.message_id)
            held.append(_said(each, given, is_own=is_own, is_response=place in sequence.trained))
        stories.append(Story(tuple(held), sequence.tools or given.tools, sequence.agent, number=number))
    for each in told:
        if each.message_id not in taken:
            place = _home(each, stories, found.main)
            said = _said(each, given, is_own=True, is_response=each.message_id in responses)
            stories[place] = replace(stories[place], said=(*stories[place].said, said))
    return stories


def _home(told: Told, stories: Sequence[Story], main: int) -> int:
    """The story that has the call which a message answers; else the main one."""
    for place, story in enumerate(stories):
        if told.tool_call_id is not None and told.tool_call_id in _asked(story.said):
            return place
    return main


def _asked(said: Iterable[Said]) -> set[str]:
    return {call.id for each in said if each.message.trained for call in each.message.tool_calls}


def _said(told: Told, given: Given, *, is_own: bool, is_response: bool) -> Said:
    calls = tuple(
        ToolCall(id=tool.call_id, function=FunctionCall(name=tool.name, arguments=tool.arguments))
        for tool in told.tools
    )
    message = Message(
        role=told.role, content=told.text, tool_calls=calls, tool_call_id=told.tool_call_id,
        name=told.name if told.role == "tool" else None, reasoning_content=told.reasoning if given.reasoning else None,
        trained=None if told.role != "assistant" else is_response, parts=told.parts,
    )  # fmt: skip
    return Said(message, context=not is_own and told.role != "assistant", failed=told.is_error)
