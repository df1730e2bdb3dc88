"""Criteria that a task may set for the files of a branch: one class per method, selected by `method`.

An unknown method, a missing field or an invalid pattern is an error when the task is loaded, never a check that passes.
"""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from schemas.judging import HIGHEST_SCORE

ALL_TOGETHER = "criteria"
"""The check that passes when every criterion does; a task may require it by this name."""

RESERVED = ("build", "visual", ALL_TOGETHER)


class _Criterion(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str = Field(min_length=1, max_length=256)
    """The check's name, as `required` names it."""
    hint: str = ""
    """A hint for people: how to make it pass; if empty, the result is shown."""

    @field_validator("name")
    @classmethod
    def _free(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f"{name} is the name of another verdict")
        return name


class _OfFile(_Criterion):
    path: str = Field(min_length=1)
    """Relative to the workspace."""


class FileExists(_OfFile):
    """The file exists."""

    method: Literal["file_exists"]


class FileSizeMin(_OfFile):
    """The file has at least so many bytes."""

    method: Literal["file_size_min"]
    bytes: int = Field(ge=0)


class FileSizeMax(_OfFile):
    """The file has at most so many bytes."""

    method: Literal["file_size_max"]
    bytes: int = Field(ge=0)


class FileContains(_OfFile):
    """The text occurs in the file."""

    method: Literal["file_contains"]
    text: str = Field(min_length=1)


class FileMatches(_OfFile):
    """The expression is found in the file. It is searched for in a sandbox: some expressions never end."""

    method: Literal["file_matches"]
    pattern: str = Field(min_length=1)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern


class HeadingsCountMin(_OfFile):
    """The Markdown file has at least so many headings."""

    method: Literal["headings_count_min"]
    count: int = Field(ge=1)


class WordCountMin(_OfFile):
    """The file has at least so many words."""

    method: Literal["word_count_min"]
    count: int = Field(ge=1)


class Command(_Criterion):
    """The command, run in a sandbox on the files, ends with the exit code."""

    method: Literal["command"]
    command: tuple[str, ...] = Field(min_length=1)
    exit_code: int = 0
    timeout_s: float = Field(default=60.0, gt=0)


class LlmJudge(_OfFile):
    """The judge gives the file at least the score, by the rubric."""

    method: Literal["llm_judge"]
    rubric: str = Field(min_length=1)
    score_min: float = Field(ge=0, le=HIGHEST_SCORE)
    samples: int = Field(default=1, ge=1, le=9)
    """Number of judge calls; their mean counts."""


OfFiles = FileExists | FileSizeMin | FileSizeMax | FileContains | HeadingsCountMin | WordCountMin
"""Criteria that the files alone decide."""

Criterion = Annotated[OfFiles | FileMatches | Command | LlmJudge, Field(discriminator="method")]
