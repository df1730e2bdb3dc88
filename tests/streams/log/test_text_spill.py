"""Long texts of open rollouts stay whole within a bound of memory."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from streams.log.text_spill import TextSpill


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1), max_size=20), st.integers(0, 60))
def test_every_text_comes_back_whole(texts: list[str], bound: int) -> None:
    spill = TextSpill(bound)
    held = [spill.hold(text) for text in texts]
    assert spill.in_memory <= bound
    assert [each.text() for each in held] == texts


def test_texts_beyond_the_bound_go_to_a_file_that_is_used_again() -> None:
    spill = TextSpill(10)
    for _ in range(3):
        held = [spill.hold(letter * 8) for letter in "abc"]
        assert (spill.in_memory, spill.in_file) == (8, 2)
        assert spill._end == 16
        assert held[2].text() == "c" * 8
        del held
        gc.collect()
        assert (spill.in_memory, spill.in_file) == (0, 0)
