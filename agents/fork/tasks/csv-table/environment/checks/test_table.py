import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import pytest
from table import parse_csv


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n", [["a", "b"], ["1", "2"]]),
        ('"Doe, Jane",41\n', [["Doe, Jane", "41"]]),
        ('"say ""hi""",x\n', [['say "hi"', "x"]]),
        ('"two\nlines",x\n', [["two\nlines", "x"]]),
        ("", []),
    ],
)
def test_rows(text, rows):
    assert parse_csv(text) == rows


def test_an_unclosed_quote_is_an_error():
    with pytest.raises(ValueError):
        parse_csv('a,b\n"c,d\n')
