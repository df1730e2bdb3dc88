"""The result of a task's criteria for a branch's files. Pure: files in, an outcome with a hint out."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from agents.criteria.criterion import (
    FileContains,
    FileExists,
    FileSizeMax,
    FileSizeMin,
    HeadingsCountMin,
    OfFiles,
    WordCountMin,
)
from agents.workspace.files import Files
from schemas.verdicts import CheckStatus

_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+\S")


class Checked(NamedTuple):
    """The outcome of one criterion."""

    status: CheckStatus
    hint: str = ""
    """The finding, when it does not pass."""
    score: float | None = None


PASSED = Checked("pass")


def check_files(criterion: OfFiles, files: Files) -> Checked:  # noqa: PLR0911 - one for each method
    """The result of checking the files."""
    file = files.get(criterion.path)
    if file is None or file.link:
        return Checked("fail", f"{criterion.path} is {'a link, not a file' if file else 'not there'}")
    match criterion:
        case FileExists():
            return PASSED
        case FileSizeMin():
            return _at_least(criterion.path, len(file.content), criterion.bytes, "bytes")
        case FileSizeMax():
            found = len(file.content)
            return (
                PASSED
                if found <= criterion.bytes
                else _found(criterion.path, found, f"at most {criterion.bytes} bytes")
            )
    text = readable(file.content)
    if text is None:
        return Checked("fail", f"{criterion.path} is not UTF-8 text")
    match criterion:
        case FileContains():
            return PASSED if criterion.text in text else Checked("fail", f"{criterion.path} lacks {criterion.text!r}")
        case HeadingsCountMin():
            return _at_least(criterion.path, count_headings(text), criterion.count, "headings")
        case WordCountMin():
            return _at_least(criterion.path, len(text.split()), criterion.count, "words")


def together(checked: Sequence[Checked]) -> Checked:
    """All criteria of a task as one: no criteria is not a pass, and neither is an unknown one."""
    if not checked:
        return Checked("unknown", "the task names no criteria")
    failed = sum(each.status == "fail" for each in checked)
    passed = sum(each.status == "pass" for each in checked)
    if passed == len(checked):
        return PASSED
    hint = f"{failed} of {len(checked)} criteria fail, {len(checked) - passed - failed} are unknown"
    return Checked("fail" if failed else "unknown", hint)


def count_headings(text: str) -> int:
    """Markdown headings (`# ...`), those in code blocks not counted."""
    count, fence = 0, None
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark is not None and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        elif fence is None and _HEADING.match(line):
            count += 1
    return count


def readable(content: bytes) -> str | None:
    """The text of a file; None if it is not text."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _at_least(path: str, found: int, wanted: int, what: str) -> Checked:
    return PASSED if found >= wanted else _found(path, found, f"at least {wanted} {what}")


def _found(path: str, found: int, wanted: str) -> Checked:
    return Checked("fail", f"{path} has {found}; it needs {wanted}")
