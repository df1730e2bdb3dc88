"""A model that replays answers from a file, by task and round: for demonstrations and tests, without an API key.

    model = "scripted-1"

    [[answer]]
    task = "haiku"            # the task's id
    round = 0                 # 0 is the draft; left out: any round
    mode = "full_pcl"         # left out: every mode
    seed = 42                 # left out: every seed
    text = "An old silent pond"
    trouble = ["overloaded"]  # the first calls of this round fail
    finish = "max_tokens"     # left out: end_turn

If several answers apply, the one with the most fields about its round is used, then the first.
"""

import asyncio
import tomllib
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.models.conversation import Message
from agents.models.model import ModelRequest, ModelResponse, TokenUsage, digest_of
from agents.models.model_error import ErrorKind, ModelError, ModelSetupError
from schemas.codec.body import first_problem
from schemas.compliance import ComplianceMode


class Place(NamedTuple):
    """The round for which a model is called."""

    task: str
    seed: int | None
    mode: ComplianceMode
    round: int


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedAnswer(_Part):
    """One answer, or an error in its place."""

    task: str
    round: int | None = Field(default=None, ge=0)
    mode: ComplianceMode | None = None
    seed: int | None = None
    text: str | None = None
    error: str | None = None
    trouble: tuple[ErrorKind, ...] = ()
    finish: Literal["end_turn", "max_tokens"] = "end_turn"
    delay_ms: int = Field(default=0, ge=0)

    def fits(self, place: Place) -> bool:
        """Whether the answer applies to a round."""
        wanted = (self.round, self.mode, self.seed)
        return self.task == place.task and all(
            want is None or want == given
            for want, given in zip(wanted, (place.round, place.mode, place.seed), strict=True)
        )

    @property
    def says(self) -> int:
        """The number of fields that the answer specifies about its round."""
        return sum(each is not None for each in (self.round, self.mode, self.seed))


class ComplianceScript(_Part):
    """A script file."""

    model: str = Field(default="scripted-1", min_length=1)
    answer: tuple[ScriptedAnswer, ...] = Field(min_length=1)


def read_script(path: Path) -> ComplianceScript:
    """Return a script. Raises ModelSetupError."""
    try:
        return ComplianceScript.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ModelSetupError(
            f"{path}: cannot be read: {error.strerror}; --model scripted needs --script FILE"
        ) from None
    except ValidationError as error:
        raise ModelSetupError(f"{path}: {first_problem(error)}") from None
    except ValueError as error:
        raise ModelSetupError(f"{path}: {error}") from None


class ScriptedRound:
    """The model of one round."""

    takes_seed = True
    takes_reasoning = False

    def __init__(self, script: ComplianceScript, place: Place) -> None:
        self.name = script.model
        self._place = place
        fitting = [each for each in script.answer if each.fits(place)]
        self._answer = max(fitting, key=lambda each: each.says) if fitting else None
        self._failed = 0

    async def call(self, request: ModelRequest) -> ModelResponse:
        """Return the answer. Raises ModelError."""
        found = self._answer
        if found is None or (found.text is None and found.error is None):
            raise ModelError("setup", f"the script has no answer for {' '.join(map(str, self._place))}")
        if found.delay_ms:
            await asyncio.sleep(found.delay_ms / 1000)
        if self._failed < len(found.trouble):
            self._failed += 1
            kind = found.trouble[self._failed - 1]
            raise ModelError(kind, f"{kind}, as the script says", retry_after_s=0.0)
        if found.text is None:
            raise ModelError("refused", found.error or "")
        asked = [each.text for each in request.messages]
        usage = TokenUsage(input=sum(map(len, asked)) // 4, output=len(found.text) // 4 + 1, cached=0)
        return ModelResponse(
            Message("assistant", found.text), self.name, found.finish, usage,
            request_digest=digest_of({"model": request.model, "messages": asked}),
        )  # fmt: skip

    async def close(self) -> None:
        """Do nothing: there are no resources to close."""
