"""The page about exports says what is there."""

import re
from pathlib import Path

from agents.formats import FORMATS

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")


def test_the_page_lists_every_format() -> None:
    """The table has a line for each format, in the same order."""
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE) == list(FORMATS)


def test_the_example_on_the_page_is_the_file_that_is_tested() -> None:
    """What people copy is what runs."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code == (ROOT / "docs" / "examples" / "dpo_stream.py").read_text("utf-8")
