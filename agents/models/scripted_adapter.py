"""A model that plays recorded turns: for demonstrations and tests, the same turns every time, in real sandboxes.

    model = "scripted-1"

    [[shared]]                            # turns with which every branch begins
    say = "I look at the code first."
    [[shared.call]]                       # calls of one turn are made together
    tool = "read_file"
    args.path = "table.py"

    [[branch]]                            # branch 0; there are as many scripts as branches, or they are begun again
    [[branch.turn]]
    trouble = ["overloaded"]              # the first attempts at this turn fail
    [[branch.turn.call]]
    tool = "write_file"
    args.path = "table.py"
    from.content = "solution/files/table.py"   # an argument from a file of the task's directory
    [[branch.turn]]
    answer = "Done."                      # or error = "..." for a turn that never comes

Which turn is next follows from the conversation, so a branch that is resumed or forked from the middle goes on rightly.
"""

import asyncio
import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from agents.models.conversation import Message, ToolCall
from agents.models.model import ModelRequest, ModelResponse, TokenUsage
from agents.models.model_error import ErrorKind, ModelError, ModelSetupError
from schemas.codec.body import first_problem
from schemas.jsontext import compact

SCRIPT = "script.toml"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class ScriptCall(_Part):
    """One call."""

    tool: str
    args: dict[str, JsonValue] = {}
    from_files: dict[str, str] = Field(default={}, alias="from")


class ScriptTurn(_Part):
    """One turn: calls, or the answer, or the error that ends the branch."""

    say: str = ""
    call: tuple[ScriptCall, ...] = ()
    answer: str | None = None
    error: str | None = None
    trouble: tuple[ErrorKind, ...] = ()
    delay_ms: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if sum((bool(self.call), self.answer is not None, self.error is not None)) != 1:
            raise ValueError("a turn has exactly one of call, answer and error")
        return self


class ScriptBranch(_Part):
    """The turns of a branch, after the shared ones."""

    turn: tuple[ScriptTurn, ...]


class Script(_Part):
    """A script file."""

    model: str = Field(default="scripted-1", min_length=1)
    delay_ms: int = Field(default=0, ge=0)
    """How long every turn takes."""
    shared: tuple[ScriptTurn, ...] = ()
    branch: tuple[ScriptBranch, ...] = Field(min_length=1)


def read_script(path: Path) -> Script:
    """A script from its file, with the files that it names. Raises ModelSetupError."""
    try:
        script = Script.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ModelSetupError(f"{path}: cannot be read: {error.strerror}; --model scripted needs a script") from None
    except ValidationError as error:
        raise ModelSetupError(f"{path}: {first_problem(error)}") from None
    except ValueError as error:
        raise ModelSetupError(f"{path}: {error}") from None
    turns = [*script.shared, *(turn for branch in script.branch for turn in branch.turn)]
    for call in (call for turn in turns for call in turn.call):
        for argument, name in call.from_files.items():
            try:
                call.args[argument] = (path.parent / name).read_text("utf-8")
            except (OSError, ValueError) as error:
                raise ModelSetupError(f"{path}: {argument} from {name}: {error}") from None
    return script


class ScriptedModel:
    """Plays the script of one branch."""

    takes_seed = False
    takes_reasoning = True

    def __init__(self, script: Script, branch: int) -> None:
        self.name = script.model
        self._turns = [*script.shared, *script.branch[branch % len(script.branch)].turn]
        self._delay_ms = script.delay_ms
        self._failed: dict[int, int] = {}

    async def call(self, request: ModelRequest) -> ModelResponse:
        """The next turn of the script. Raises ModelError."""
        number = sum(message.role == "assistant" for message in request.messages)
        if number >= len(self._turns):
            raise ModelError("setup", f"the script has only {len(self._turns)} turns")
        turn = self._turns[number]
        await asyncio.sleep((self._delay_ms + turn.delay_ms) / 1000)
        failed = self._failed.get(number, 0)
        if failed < len(turn.trouble):
            self._failed[number] = failed + 1
            raise ModelError(turn.trouble[failed], f"{turn.trouble[failed]}, as the script says", retry_after_s=0.0)
        if turn.error is not None:
            raise ModelError("refused", turn.error)
        calls = tuple(
            ToolCall(f"call_{number}_{position}", call.tool, compact(call.args))
            for position, call in enumerate(turn.call)
        )
        said = Message("assistant", turn.answer if turn.answer is not None else turn.say, tool_calls=calls)
        return ModelResponse(said, self.name, "tool_use" if calls else "end_turn", _tokens(request, said))

    async def close(self) -> None:
        """Nothing is held."""


# The counts of scripted runs are taken of the texts of these two, as they were first written: names and fields stay.
class ToolUse(NamedTuple):
    """A call, reduced to what counting needs."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolAnswer(NamedTuple):
    """An answer to a call, reduced to what counting needs."""

    call_id: str
    content: str
    failed: bool


def _tokens(request: ModelRequest, said: Message) -> TokenUsage:
    """A plausible count: four characters a token; earlier turns count as read from the cache."""
    task, *entries = request.messages
    sizes = [len(compact(_plain(kind, list(group)))) // 4 for kind, group in groupby(entries, lambda each: each.role)]
    start = (len(request.system) + len(task.text)) // 4
    written = (len(said.text) + sum(len(call.arguments) for call in said.tool_calls)) // 4 + 8
    return TokenUsage(
        input=sum(sizes[-2:]) if sizes else start, output=written, cached=(start + sum(sizes[:-2])) if sizes else 0
    )


def _plain(role: str, messages: list[Message]) -> list[str]:
    """A turn, or all answers to its calls."""
    if role == "tool":
        return [str(tuple(ToolAnswer(each.tool_call_id, each.text, each.is_error) for each in messages))]
    [turn] = messages
    return [turn.text, str(tuple(ToolUse(call.id, call.name, call.parsed()) for call in turn.tool_calls))]
