"""The script of a rollout: what a person writes in `rollouts/*.toml`, checked on reading.

A script holds only settings that people would want to read or change: the turns of each branch, its verdicts, and what
a judge preferred. Ids, timestamps, sequence numbers and token counts follow from it (see `sample_lines.py`). An unknown
key is an error, so a typing mistake in a script cannot pass unnoticed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files
from itertools import product

from pydantic import BaseModel, ConfigDict, JsonValue

from schemas.events import EndStatus
from schemas.judging import MissingCause, Preference
from schemas.verdicts import BuildStatus, CheckStatus, Stage, VisualStatus

SYSTEM_PROMPT = (
    "You are a coding agent in a sandboxed checkout. Read before you edit, run the tests before you answer, "
    "and answer in two or three sentences."
)


class Spelling(StrEnum):
    """How a producer spells the keys of its events; readers accept all of them."""

    CAMEL = "camel"
    SNAKE = "snake"
    SNAKE_NAME = "snake-name"
    """Snake case, with `name` instead of `tool_name`."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LongOutput(_Part):
    """A tool output of several hundred lines, as a pattern."""

    before: str = ""
    line: str
    """A format string; it is given one value of each axis in `over`, and `percent`, the progress."""
    over: dict[str, tuple[str | int, ...]]
    """The axes: one line for every combination, the last axis fastest."""
    after: str = ""

    def text(self) -> str:
        """All lines, the same on every call."""
        cases = list(product(*self.over.values()))
        lines = [
            self.line.format(percent=100 * number // len(cases), **dict(zip(self.over, case, strict=True)))
            for number, case in enumerate(cases, start=1)
        ]
        return self.before + "\n".join(lines) + "\n" + self.after


class CallError(_Part):
    """Why a tool gave no output."""

    code: str
    message: str


class Call(_Part):
    """One tool call; without output, long_output and error its result never arrived."""

    tool: str
    args: dict[str, JsonValue]
    output: JsonValue = None
    long_output: LongOutput | None = None
    error: CallError | None = None
    ms: int | None = None
    """How long it took; by default a function of the output's size."""

    def result(self) -> JsonValue:
        """The tool's result, null for an error."""
        return self.long_output.text() if self.long_output else self.output

    @property
    def returned(self) -> bool:
        """Whether there is a tool_result for this call."""
        return self.output is not None or self.long_output is not None or self.error is not None


class Turn(_Part):
    """One model turn: some text, then parallel calls or an answer, or the error that ended the run."""

    say: str = ""
    plan: str = ""
    facts: str = ""
    call: tuple[Call, ...] = ()
    answer: str | None = None
    error: str | None = None


class Tests(_Part):
    """Counts of a test run; the total is their sum."""

    passed: int
    failed: int = 0
    skipped: int = 0


class Build(_Part):
    """A build verdict."""

    status: BuildStatus
    exit_code: int | None = None
    stage: Stage | None = None
    tests: Tests | None = None
    coverage: float | None = None
    protected_paths_intact: bool | None = None
    wall_ms: int | None = None
    """How long it took; also how long after the branch's end the verdict came."""


class Probe(_Part):
    """One question asked of the rendered page."""

    name: str
    ok: bool
    detail: str | None = None


class Visual(_Part):
    """A visual verdict."""

    verdict: VisualStatus
    reason: str | None = None
    uncaught_errors: tuple[str, ...] = ()
    console_errors: tuple[str, ...] = ()
    dom_probes: tuple[Probe, ...] = ()
    renders_non_empty: bool | None = None


class Check(_Part):
    """Any other named check."""

    name: str
    status: CheckStatus
    score: float | None = None
    hint: str | None = None


class Branch(_Part):
    """One attempt at one branch; a retried branch is written twice, with attempt 0 and attempt 1."""

    index: int
    attempt: int = 0
    turn: tuple[Turn, ...]
    ends: EndStatus | None = None
    """An explicit end line; without one, the answer or the error of the last turn ends the branch, if there is any."""
    sent_twice: tuple[int, ...] = ()
    """Sequence numbers of events whose line its producer sent again, as after a lost acknowledgement."""
    build: tuple[Build, ...] = ()
    visual: tuple[Visual, ...] = ()
    check: tuple[Check, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether anything ends this attempt."""
        last = self.turn[-1]
        return self.ends is not None or last.answer is not None or last.error is not None


class PairVotes(_Part):
    """The judge's answer about one pair: `ab` and `ba` hold one entry per sample, in that order of showing.

    `a` and `b` name the pair's branches in both orders. An entry may be the cause of a missing vote instead.
    """

    pair: tuple[int, int]
    ab: tuple[Preference | MissingCause, ...]
    ba: tuple[Preference | MissingCause, ...]
    why: dict[Preference, str]
    """The reasoning behind each preference that occurs; `{a}` and `{b}` become the letters the judge was shown."""


class RolloutScript(_Part):
    """One task, forked into branches."""

    id: str
    task: str
    starts_s: int
    """When the rollout opens, in seconds after the sample's first moment."""
    spelling: Spelling
    required: tuple[str, ...] = ("build",)
    deadline_ms: int = 600_000
    model: str = "demo-coder-1"
    judge: str = "demo-judge-1"
    system_prompt: str = SYSTEM_PROMPT
    tools: tuple[str, ...]
    max_steps: int = 12
    labels: dict[str, str] = {}
    actions: bool = False
    """Whether the producer also reports action and status events around each call."""
    numbered: bool = True
    """Whether event lines carry attempt and seq; without them the order of lines counts."""
    shared: tuple[Turn, ...] = ()
    """The turns before the fork: every branch begins with them."""
    branch: tuple[Branch, ...]
    votes: tuple[PairVotes, ...] = ()


def scripts() -> Iterator[RolloutScript]:
    """The scripted rollouts, by file name."""
    folder = files(__package__) / "rollouts"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".toml"):
            yield RolloutScript.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))


def tool_definitions() -> dict[str, JsonValue]:
    """The tools that scripts name, as function definitions."""
    text = (files(__package__) / "tools.toml").read_text(encoding="utf-8")
    return {
        name: {
            "type": "function",
            "function": {
                "name": name,
                "description": tool["description"],
                "parameters": {
                    "type": "object",
                    "properties": {
                        key: {"type": "string", "description": meaning} for key, meaning in tool["parameters"].items()
                    },
                    "required": list(tool["parameters"]),
                },
            },
        }
        for name, tool in tomllib.loads(text).items()
    }
