"""Times of traces, in whatever unit they are written."""

import pytest

from agents.importers.traces.fields import millis, nanos


@pytest.mark.parametrize("value", [1_794_963_755_162_000_123, "1794963755162000123"])
def test_whole_nanoseconds_are_not_rounded(value: int | str) -> None:
    assert nanos(value) == 1_794_963_755_162_000_123


@pytest.mark.parametrize(
    "value",
    [1_794_963_755_162, "1794963755162", 1_794_963_755.1625, "2026-11-18T01:02:35.162Z", "2026-11-18T01:02:35.162"],
)
def test_every_way_to_write_a_time_has_its_milliseconds(value: float | str) -> None:
    assert millis(value) == 1_794_963_755_162
