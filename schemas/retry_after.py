"""Retry-After, the header in which a service gives the time of a retry: seconds, or an HTTP date."""

from datetime import UTC
from email.utils import parsedate_to_datetime
from math import isfinite


def seconds_until(text: str | None, now: float) -> float | None:
    """How many seconds to wait, counted from `now` (seconds since 1970); None if it cannot be read.

    A date that has passed is 0 or less. The caller sets the limit.
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        return seconds if isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp() - now
