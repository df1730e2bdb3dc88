"""A judge that goes by a rule file: for demonstrations and tests, the same answer to the same question every time.

    judge = "rules-1"            # its name in votes
    delay_ms = 0                 # how long it takes to answer

    [[rule]]                     # the first rule that decides counts; when none does, it is a tie
    prefer = "contains"          # contains | lacks | matches (a regular expression) | longest | shortest | first | second | tie
    text = "tests passed"
    reasoning = "It ran the tests."

    [[rule]]
    when = "timeout please"      # only where one of the texts matches this expression
    share = 0.1                  # only so many of the calls, chosen by the prompt's hash and the sample
    cause = "timeout"            # no answer, and why

    [[rule]]
    score = 7                    # for branches that are scored by themselves

`prefer = "first"` with a share is a judge with a position bias.
"""

import asyncio
import re
import tomllib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agents.judge.answers import Answer, Letter
from agents.judge.judge import JudgeSetupError, JudgeTroubleError
from agents.judge.prompt import Prompt
from schemas.codec.body import first_problem
from schemas.judging import CONTENT_JUDGE, MissingCause

Preferring = Literal["contains", "lacks", "matches", "longest", "shortest", "first", "second", "tie"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Part):
    """One rule."""

    when: re.Pattern[str] | None = None
    share: float = Field(default=1.0, ge=0.0, le=1.0)
    prefer: Preferring | None = None
    text: str = ""
    cause: MissingCause | None = None
    score: float | None = Field(default=None, ge=0, le=10)
    reasoning: str = ""

    @model_validator(mode="after")
    def _decides_one_thing(self) -> Self:
        if sum(each is not None for each in (self.prefer, self.cause, self.score)) != 1:
            raise ValueError("a rule has exactly one of prefer, cause and score")
        if self.prefer in ("contains", "lacks", "matches") and not self.text:
            raise ValueError(f"prefer = {self.prefer!r} needs a text")
        re.compile(self.text if self.prefer == "matches" else "")
        return self

    def applies(self, prompt: Prompt, number: int) -> bool:
        """Whether the rule is about this call."""
        texts = [text for text in (prompt.first, prompt.second) if text is not None]
        if self.when is not None and not any(self.when.search(text) for text in texts):
            return False
        if self.cause is None and (self.score is not None) != prompt.scalar:
            return False
        chance = sha256(f"{number}/{prompt.sample}/{prompt.hash}".encode()).digest()
        return int.from_bytes(chance[:4], "big") < self.share * 2**32

    def letter(self, first: str, second: str) -> Letter | None:
        """The side that the rule prefers; None if it does not decide between the two."""
        if self.prefer in ("first", "second", "tie"):
            return {"first": "a", "second": "b", "tie": "tie"}[self.prefer]  # type: ignore[return-value]
        one, other = self._measure(first), self._measure(second)
        return None if one == other else "a" if one > other else "b"

    def _measure(self, text: str) -> int:
        match self.prefer:
            case "contains":
                return int(self.text in text)
            case "lacks":
                return int(self.text not in text)
            case "matches":
                return int(re.search(self.text, text) is not None)
            case "shortest":
                return -len(text)
            case _:
                return len(text)


class Rules(_Part):
    """A whole rule file."""

    judge: str = Field(default="rules", min_length=1, max_length=256)
    delay_ms: int = Field(default=0, ge=0)
    rule: tuple[Rule, ...] = ()

    @field_validator("judge")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name == CONTENT_JUDGE:
            raise ValueError(f"{name!r} is the name of ties by content; give the judge another name")
        return name


class ScriptedJudge:
    """Answers by rules. `allow` is called before every call; if it returns False, the budget is spent."""

    def __init__(self, rules: Rules, allow: Callable[[], bool] = lambda: True) -> None:
        self.name = rules.judge
        self._rules = rules
        self._allow = allow

    async def ask(self, prompt: Prompt) -> Answer:
        """The answer of the first rule that decides."""
        if not self._allow():
            raise JudgeTroubleError("budget", "the budget of calls per hour is spent")
        await asyncio.sleep(self._rules.delay_ms / 1000)
        for number, rule in enumerate(self._rules.rule):
            if not rule.applies(prompt, number):
                continue
            if rule.cause is not None:
                raise JudgeTroubleError(rule.cause, f"rule {number} says so")
            if prompt.second is None:
                return Answer(None, rule.score, rule.reasoning or f"rule {number}")
            letter = rule.letter(prompt.first, prompt.second)
            if letter is not None:
                return Answer(letter, None, rule.reasoning or f"rule {number}: {rule.prefer} {rule.text}".strip())
        if prompt.scalar:
            raise JudgeTroubleError("refused", "no rule gives a score")
        return Answer("tie", None, "no rule tells them apart")

    async def close(self) -> None:
        """Nothing is held."""


def read_rules(path: Path) -> Rules:
    """The rules in a file. Raises JudgeSetupError with the field and the reason."""
    try:
        return Rules.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise JudgeSetupError(f"the judge's rules {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise JudgeSetupError(f"the judge's rules {path}: {first_problem(error)}") from None
    except (ValueError, re.error) as error:
        raise JudgeSetupError(f"the judge's rules {path}: {error}") from None
