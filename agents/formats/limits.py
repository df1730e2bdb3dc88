"""Records that a format cannot represent exactly are left out with a reason, before any row is made of them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agents.formats.chat import has_media, is_given, unanswered
from agents.formats.shape import Format, Group, Left, Made, Row, Speech
from schemas.training import DpoRecord, Message, PpoRecord, SftRecord

Spoken = SftRecord | DpoRecord | PpoRecord


def within_limits(form: Format) -> Format:
    """The format, limited to records that its speech can represent."""

    def make(group: Group) -> Iterator[Row | Left]:
        sft, dpo, ppo = _Sieve(form, "sft"), _Sieve(form, "dpo"), _Sieve(form, "ppo")
        kept = replace(
            group,
            sft=tuple(filter(sft, group.sft)),
            dpo=tuple(filter(dpo, group.dpo)),
            ppo=tuple(filter(ppo, group.ppo)),
        )
        yield from (Left(reason) for sieve in (sft, dpo, ppo) for reason in sieve.reasons)
        yield from form.make(kept)

    return form._replace(make=make)


class _Sieve:
    """Keeps the records of one kind that a format can represent, and the reasons of the others."""

    def __init__(self, form: Format, kind: str) -> None:
        self._needed = kind in form.needs
        self._speech = form.speech
        self.reasons: list[str] = []

    def __call__(self, record: Spoken) -> bool:
        reason = unsayable(record, self._speech) if self._needed else None
        if reason is not None:
            self.reasons.append(reason)
        return reason is None


def unsayable(record: Spoken, speech: Speech) -> str | None:
    """Why a format cannot represent a record; None if it can."""
    if not speech.media and any(map(has_media, messages_of(record))):
        return "not_representable"
    if not speech.given and any(map(is_given, _learnt(record))):
        return "given_message"
    if speech.answered:
        shown = record.messages if isinstance(record, SftRecord) else record.prompt
        ends = isinstance(record, SftRecord) and shown[-1].role != "assistant"
        return "ends_without_assistant" if ends else unanswered(shown)
    return None


def messages_of(record: Spoken) -> tuple[Message, ...]:
    """All messages of a record."""
    match record:
        case SftRecord():
            return record.messages
        case DpoRecord():
            return (*record.prompt, *record.chosen, *record.rejected)
        case PpoRecord():
            return (*record.prompt, *record.completion)


def _learnt(record: Spoken) -> Iterable[Message]:
    """The messages that a trainer without masks learns from."""
    match record:
        case SftRecord():
            return record.messages
        case DpoRecord():
            return (*record.chosen, *record.rejected)
        case PpoRecord():
            return record.completion


def lost_reasoning(form: Format, rows: Iterable[Row]) -> int:
    """How many messages with reasoning the rows of one rollout contain, if the format has no place for it."""
    if form.speech.reasoning:
        return 0
    made: dict[str, Made] = {source.record_id: source for row in rows for source in row.sources}
    spoken = (record for record in made.values() if isinstance(record, SftRecord | DpoRecord | PpoRecord))
    return sum(said.reasoning_content is not None for record in spoken for said in messages_of(record))
