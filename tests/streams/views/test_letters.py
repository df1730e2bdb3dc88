"""Dead letters as they are read: what is one letter, which are asked for, which may be put back."""

import pytest

from streams.log.letter_list import DeadLetter, Filters, by_reason, dead_letter, fold_letter, parse_since
from streams.log.letters import Letter
from streams.log.reader import LookError
from streams.log.record import LogRecord, Placed
from streams.log.topics import DEAD_LETTERS, DPO, EVIDENCE, JUDGE_VOTES
from streams.views.topic_name import find_topic


def stored(place: int = 0, at: int = 1000, **fields: object) -> Placed:
    """A letter in the log."""
    known: dict[str, object] = {
        "key": b"r1", "value": b"bytes", "headers": (("ce_id", b"1"),), "topic": "p.rollouts.build-verdicts.v1",
        "partition": 2, "offset": 7, "reason": "undecodable", "error": "DecodeError", "message": "no Avro",
    }  # fmt: skip
    letter = Letter(**{**known, **fields})  # type: ignore[arg-type]
    return Placed(DEAD_LETTERS, 2, LogRecord(place, at, letter.key, letter.value, tuple(letter.wire_headers())))


def test_a_letter_is_known_by_where_its_original_stands() -> None:
    """The id is topic, partition and offset of the original; the value is not held."""
    letter = dead_letter(stored())
    assert letter.letter_id == "p.rollouts.build-verdicts.v1/2/7"
    assert (letter.size, letter.letter.value, letter.letter.headers) == (5, None, (("ce_id", b"1"),))


def test_letters_with_the_same_origin_and_reason_are_one() -> None:
    """A crash can write a letter twice."""
    found: dict[tuple[str, str], DeadLetter] = {}
    for each in (stored(0), stored(1), stored(2, reason="late")):
        fold_letter(found, each)
    assert [(letter.letter.reason, letter.copies) for letter in found.values()] == [("undecodable", 2), ("late", 1)]


def test_letters_that_do_not_say_where_they_come_from_stay_apart() -> None:
    """Without an origin a letter is known by its own place."""
    found: dict[tuple[str, str], DeadLetter] = {}
    for offset in (0, 1):
        fold_letter(found, Placed(DEAD_LETTERS, 2, LogRecord(offset, 1000, b"r1", b"x", ())))
    assert [letter.letter_id for letter in found.values()] == [f"{DEAD_LETTERS.name}/2/0", f"{DEAD_LETTERS.name}/2/1"]


def test_headers_that_make_no_sense_are_still_a_letter() -> None:
    """Another program may write to the topic; listing goes on."""
    letter = dead_letter(
        Placed(DEAD_LETTERS, 0, LogRecord(3, 1000, None, None, (("__braid.errors.offset", b"three"),)))
    )
    assert (letter.has_origin, letter.letter.reason) == (False, "unknown")


@pytest.mark.parametrize(
    ("filters", "matches"),
    [
        (Filters(), True),
        (Filters(reason="undecodable", rollout_id="r1", topic="p.rollouts.build-verdicts.v1", since=1000), True),
        (Filters(letter_id="p.rollouts.build-verdicts.v1/2/7"), True),
        (Filters(letter_id="p.rollouts.build-verdicts.v1/2/8"), False),
        (Filters(reason="late"), False),
        (Filters(rollout_id="r2"), False),
        (Filters(topic="rollouts.build-verdicts.v1"), False),
        (Filters(since=1001), False),
    ],
)
def test_all_filters_must_hold(filters: Filters, matches: bool) -> None:
    """A filter returns exactly the letters that match."""
    assert filters.match(dead_letter(stored())) is matches


@pytest.mark.parametrize("text", ["2026-01-15T09:00:00", "2026-01-15T09:00:00Z", "2026-01-15T10:00:00+01:00"])
def test_since_is_utc_unless_it_names_a_zone(text: str) -> None:
    """All times that are shown are UTC, so what is typed is too."""
    assert parse_since(text) == 1_768_467_600_000


def test_a_time_that_is_none_is_refused_with_an_example() -> None:
    """A typo must not list everything."""
    with pytest.raises(LookError, match="2026-01-31"):
        parse_since("yesterday")


def test_counts_come_most_first() -> None:
    """The summary at the end of the list."""
    letters = [dead_letter(each) for each in (stored(0, reason="late"), stored(1), stored(2, offset=8))]
    assert list(by_reason(letters).items()) == [("undecodable", 2), ("late", 1)]


@pytest.mark.parametrize(
    ("text", "topic"), [("dpo", DPO), ("evidence", EVIDENCE), ("votes", JUDGE_VOTES), ("training.dpo.v1", DPO), ("p.training.dpo.v1", DPO)]
)  # fmt: skip
def test_a_topic_is_found_by_a_part_that_only_one_has(text: str, topic: object) -> None:
    """People do not type whole names."""
    assert find_topic(text, "p.") is topic


@pytest.mark.parametrize(
    ("text", "named"), [("judge", "rollouts.judge-requests.v1, rollouts.judge-votes.v1"), ("nope", "training.sft.v1")]
)
def test_a_topic_that_is_not_found_lists_those_there_are(text: str, named: str) -> None:
    """The error is the help."""
    with pytest.raises(LookError, match=named):
        find_topic(text)
