"""Retry-After is read in both of its forms."""

import pytest

from schemas.retry_after import seconds_until

NOON = 1_893_499_200.0  # Tue, 01 Jan 2030 12:00:00 GMT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Tue, 99 Jan 2030 12:00:00 GMT", None),
        ("2", 2.0),
        ("0.5", 0.5),
        ("Tue, 01 Jan 2030 12:00:30 GMT", 30.0),
        ("Tue, 01 Jan 2030 13:00:30 +0100", 30.0),
        ("Tue, 01 Jan 2030 12:00:30 -0000", 30.0),
        ("Tuesday, 01-Jan-30 12:00:30 GMT", 30.0),
        ("Tue Jan  1 12:00:30 2030", 30.0),
        ("Tue, 01 Jan 2030 11:59:00 GMT", -60.0),
    ],
)
def test_seconds_and_dates_are_read(text: str | None, seconds: float | None) -> None:
    """All forms of a date that HTTP knows; what cannot be read is no wish."""
    assert seconds_until(text, NOON) == seconds
