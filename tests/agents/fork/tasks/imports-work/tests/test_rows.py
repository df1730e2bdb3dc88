import os
from pathlib import Path

import pytest
from checks.rules import same
from table import parse_csv


@pytest.mark.parametrize(
    ("text", "rows"),
    [("a,b\n1,2\n", [["a", "b"], ["1", "2"]]), ('"x, y",z\n', [["x, y", "z"]]), ('"say ""hi"""\n', [['say "hi"']])],
)
def test_rows(text, rows):
    same(parse_csv(text), rows)


def test_the_build_is_there():
    built = Path(os.environ["PYTHONPATH"], "dist", "built.txt")
    assert built.read_text() == "built\n"
