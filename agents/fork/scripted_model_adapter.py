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
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from agents.fork.fork_error import ForkError
from agents.fork.model import Ask, Assistant, ModelTroubleError, Tokens, ToolUse, TroubleKind, Turn
from schemas.avro_body import first_problem
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
    trouble: tuple[TroubleKind, ...] = ()
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
    """A script from its file, with the files that it names. Raises ForkError."""
    try:
        script = Script.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ForkError(f"{path}: cannot be read: {error.strerror}; --model scripted needs a script") from None
    except ValidationError as error:
        raise ForkError(f"{path}: {first_problem(error)}") from None
    except ValueError as error:
        raise ForkError(f"{path}: {error}") from None
    turns = [*script.shared, *(turn for branch in script.branch for turn in branch.turn)]
    for call in (call for turn in turns for call in turn.call):
        for argument, name in call.from_files.items():
            try:
                call.args[argument] = (path.parent / name).read_text("utf-8")
            except (OSError, ValueError) as error:
                raise ForkError(f"{path}: {argument} from {name}: {error}") from None
    return script


class ScriptedModel:
    """Plays the script of one branch."""

    takes_seed = False

    def __init__(self, script: Script, branch: int) -> None:
        self.name = script.model
        self._turns = [*script.shared, *script.branch[branch % len(script.branch)].turn]
        self._delay_ms = script.delay_ms
        self._failed: dict[int, int] = {}

    async def ask(self, ask: Ask) -> Turn:
        """The next turn of the script. Raises ModelTroubleError."""
        number = sum(isinstance(entry, Assistant) for entry in ask.entries)
        if number >= len(self._turns):
            raise ModelTroubleError("setup", f"the script has only {len(self._turns)} turns")
        turn = self._turns[number]
        await asyncio.sleep((self._delay_ms + turn.delay_ms) / 1000)
        failed = self._failed.get(number, 0)
        if failed < len(turn.trouble):
            self._failed[number] = failed + 1
            raise ModelTroubleError(turn.trouble[failed], f"{turn.trouble[failed]}, as the script says", 0.0)
        if turn.error is not None:
            raise ModelTroubleError("refused", turn.error)
        calls = tuple(
            ToolUse(f"call_{number}_{position}", call.tool, call.args) for position, call in enumerate(turn.call)
        )
        text = turn.answer if turn.answer is not None else turn.say
        return Turn(text, calls, "tool_use" if calls else "end_turn", _tokens(ask, text, calls))


def _tokens(ask: Ask, text: str, calls: tuple[ToolUse, ...]) -> Tokens:
    """A plausible count: four characters a token; what earlier turns sent is read from the cache."""
    sizes = [len(compact(_plain(entry))) // 4 for entry in ask.entries]
    start = (len(ask.system) + len(ask.task)) // 4
    written = (len(text) + sum(len(compact(dict(call.arguments))) for call in calls)) // 4 + 8
    return Tokens(
        input=sum(sizes[-2:]) if sizes else start, output=written, cached=(start + sum(sizes[:-2])) if sizes else 0
    )


def _plain(entry: Any) -> Any:
    return [str(part) for part in entry]
