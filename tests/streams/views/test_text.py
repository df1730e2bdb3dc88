"""Foreign text as it is shown: redacted, on one line, harmless to a terminal."""

import orjson
import pytest

from schemas.events import AgentEvent, AgentEvents
from schemas.verdicts import BuildVerdict
from streams.log.terminal_text import json_of, line, listed, moment
from streams.views.preview import preview
from tests.streams.views.conftest import SECRET


def test_a_line_is_redacted_before_it_is_cut() -> None:
    """No part of a secret that runs over the cut is left."""
    shown = line(f"the key is {SECRET}", 30)
    assert len(shown) <= 30
    assert SECRET[:16] not in shown


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b31m", "\u202eabc", "a\x07b", "\u200b", "\ud800"])
def test_a_line_spells_out_what_a_terminal_would_obey(text: str) -> None:
    """Escapes, turned directions, bells and halves of characters are shown, not done."""
    shown = line(text)
    assert shown.isprintable()
    assert "\\" in shown


def test_a_line_is_one_line() -> None:
    """Line breaks and runs of spaces become one space."""
    assert line("a\n\n  b\r\nc\u2028d") == "a b c d"


def test_json_that_travels_as_text_is_redacted_too() -> None:
    """A secret inside an event's data, which is JSON in a string, is removed, and the text stays JSON."""
    event = AgentEvent(channel="tool", event="tool_call", data=orjson.dumps({"args": {"key": SECRET}, "n": 1}).decode())
    shown = json_of(AgentEvents(rollout_id="r", branch_index=0, events=(event,)))
    data = orjson.loads(shown["events"][0]["data"])
    assert SECRET not in str(shown)
    assert data["n"] == 1


def test_a_record_without_secrets_is_shown_as_it_is() -> None:
    """Ids, digests and names of fields are left alone."""
    verdict = BuildVerdict(rollout_id="r1", branch_index=0, verdict_id="0f" * 16, status="success", exit_code=0)
    assert json_of(verdict) == verdict.plain()


def test_a_list_that_is_too_long_says_how_many_more() -> None:
    """Never more than asked for, and nothing silently left out."""
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


def test_a_time_beyond_the_calendar_is_still_shown() -> None:
    """A producer's nonsense does not end a listing."""
    assert moment(10**18) == f"{10**18} ms"


def test_a_preview_of_text_is_redacted() -> None:
    """Foreign text is shown without its secrets."""
    shown = preview(f"no Avro: {SECRET}".encode())
    assert (shown.form, shown.header) == ("text", "")
    assert SECRET not in shown.text


def test_a_preview_of_bytes_is_redacted_behind_a_length_byte_that_is_a_letter() -> None:
    """In Avro a string's length stands before it, and may look like a part of the secret."""
    shown = preview(b"\x00\x00\x00\x00\x07\x04f" + b"AKIAIOSFODNN7EXAMPLE" + b"\x01\x02")
    assert shown.header == "00 00 00 00 07"
    assert "AKIA" not in shown.text
    assert shown.text.startswith("\\x04f[REDACTED:")


def test_a_preview_is_cut() -> None:
    """A letter of ten megabytes does not fill a screen."""
    assert len(preview(b"\xff" * 1_000_000, 100).text) == 100


def test_a_preview_of_nothing_says_so() -> None:
    """A record without a value is no error."""
    assert preview(None).form == "empty"
