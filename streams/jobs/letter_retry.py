"""Write dead letters back to their topics: once each, with their own key, bytes and headers.

A retried record carries the letter's origin in a header; before anything is written, the target partitions are read for
records that carry it. Two people who retry the same letter at the same moment can still both write it: the worker
ignores a repeated fact.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from aiokafka.errors import KafkaError

from streams.cluster.connections import ClusterError, start_producer
from streams.log.kafka_reader import KafkaReader
from streams.log.kafka_writer import send
from streams.log.letter_list import DeadLetter
from streams.log.letters import PREFIX, RETRIED
from streams.log.outgoing_record import Outgoing
from streams.log.record import Span
from streams.log.topics import BY_NAME, DEAD_LETTERS

NEVER = {
    "late": "late: the rollout had decided without it, and what is decided never changes",
    "given_up": "given_up: nothing can be made of its rollout; send it again under another id",
}
"""Reasons for which a letter is never put back."""

Step = Literal["put back", "would be put back", "already put back", "refused"]


class Outcome(NamedTuple):
    """The plan for a letter, or its outcome."""

    letter: DeadLetter
    step: Step
    why: str = ""


async def plan(log: KafkaReader, letters: Sequence[DeadLetter], *, again: bool = False) -> list[Outcome]:
    """The plan for retrying these letters; this writes no record. Letters of one origin are put back once.

    A letter that failed again after it was put back is left alone unless `again`: a retry that is repeated must not go
    round in circles.
    """
    known = await already_put_back(log, letters)
    outcomes: list[Outcome] = []
    for letter in letters:
        refusal = refused(letter, log)
        if not refusal and letter.retried_from and not again:
            refusal = "it was put back before and failed again; give its id to put it back once more"
        if refusal:
            outcomes.append(Outcome(letter, "refused", refusal))
        elif letter.letter.origin in known:
            outcomes.append(Outcome(letter, "already put back"))
        else:
            known.add(letter.letter.origin)
            outcomes.append(Outcome(letter, "would be put back"))
    return outcomes


def refused(letter: DeadLetter, log: KafkaReader) -> str:
    """Why a letter is never put back; empty when it may be."""
    if not letter.has_origin:
        return "it does not say where it came from"
    original = letter.letter
    if original.reason in NEVER:
        return NEVER[original.reason]
    topic = BY_NAME.get(original.topic.removeprefix(log.settings.prefix))
    if topic is None or not original.topic.startswith(log.settings.prefix) or topic.kind not in ("fact", "work"):
        return f"{original.topic} is no topic that facts or work are read from"
    if original.partition not in log.partitions(topic):
        return f"{original.topic} has no partition {original.partition}"
    if original.cut:
        return f"the letter holds only a part of it; all of it stands in {original.origin}"
    return "it has neither a key nor a value" if original.key is None and not letter.size else ""


async def already_put_back(log: KafkaReader, letters: Sequence[DeadLetter]) -> set[str]:
    """The origins that a record in their target partition carries. It can only come after the original."""
    first: dict[tuple[str, int], int] = {}
    for letter in letters:
        if not refused(letter, log):
            place = (letter.letter.topic.removeprefix(log.settings.prefix), letter.letter.partition)
            first[place] = min(first.get(place, letter.letter.offset + 1), letter.letter.offset + 1)
    held = await log.spans({BY_NAME[name]: None for name, _ in first})
    spans = {
        name: {
            number: Span(max(first[name, number], span.start), span.end)
            for number, span in parts.items()
            if (name, number) in first
        }
        for name, parts in held.items()
    }
    found: set[str] = set()
    async for _, _, record in log.read(spans):
        found |= {content.decode(errors="replace") for name, content in record.headers if name == RETRIED}
    return found


async def put_back(log: KafkaReader, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Write the planned records, in the order of the letters; return when the broker has all of them.

    The letters are read again for their values, so that many large ones do not fill memory.
    """
    due = {outcome.letter.place: outcome for outcome in outcomes if outcome.step == "would be put back"}
    if not due:
        return list(outcomes)
    done: set[tuple[int, int]] = set()
    producer = await start_producer(log.settings)
    try:
        acknowledgements = []
        async for _, partition, record in log.records([DEAD_LETTERS]):
            outcome = due.get((partition, record.offset))
            if outcome is None:
                continue
            letter = outcome.letter.letter
            headers = [(name, content) for name, content in record.headers if not name.startswith(PREFIX)]
            headers.append((RETRIED, letter.origin.encode()))
            acknowledgements.append(
                await send(producer, Outgoing(letter.topic, letter.partition, record.key, record.value, headers))
            )
            done.add(outcome.letter.place)
        for acknowledgement in acknowledgements:
            await acknowledgement
    except KafkaError as error:
        raise ClusterError(
            f"{log.place} did not take a letter back: {error}; try again, what is back is skipped"
        ) from error
    finally:
        await producer.stop()
    return [outcome._replace(step="put back") if outcome.letter.place in done else outcome for outcome in outcomes]
