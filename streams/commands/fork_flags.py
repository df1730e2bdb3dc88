"""Options of `braid fork`."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from streams.commands.numbers import MOMENT_S, MOST_EXACT, number
from streams.commands.options import Flag, Flags


@dataclass(frozen=True, kw_only=True)
class ForkFlags(Flags):
    """The options of `braid fork`."""

    branches: Annotated[int, number("--branches", 1)] = 8
    """How many."""
    concurrency: Annotated[int, number("--concurrency", 1)] = 4
    """How many at once; each has a sandbox."""
    model: Literal["scripted", "anthropic", "openai"] = "scripted"
    """`anthropic`: a model of the Messages API. `openai`: of chat completions, at OpenAI or any server that speaks them (vLLM,
    SGLang, llama.cpp). `scripted`: turns from a script."""
    model_name: str = ""
    """Which model; fork.model (BRAID_FORK__MODEL) otherwise."""
    base_url: str = ""
    """The address of its service, such as http://127.0.0.1:8000/v1; fork.base_url (BRAID_FORK__BASE_URL) otherwise."""
    sandbox: Literal["local", "e2b"] = "local"
    """`local`: on this machine, without network. `e2b`: a machine of E2B's for each (E2B_API_KEY)."""
    temperature: str = ""
    """Temperatures of the branches, as in 0.2,0.6,1.0; begun again when there are more branches."""
    seed: Annotated[int | None, number("--seed", -MOST_EXACT, MOST_EXACT)] = None
    """Seed of branch 0, incremented for each further branch; for models that accept a seed."""
    id: str = ""
    """The rollout's id; made from the task's name and the time otherwise."""
    resume: str = ""
    """The id of a rollout whose unfinished branches are run again, as new attempts."""
    fork_from: str = ""
    """ROLLOUT/BRANCH@SEQ: begin with the turns that a branch had made by then, and fork from there."""
    log: Path | None = None
    """Write to this file of lines instead of Kafka; `braid run FILE --out DIR` reads it."""
    verify: Annotated[bool, Flag] = False
    """Test each branch when it has ended, as `braid build-verifier` and `braid visual-verifier` do on Kafka, and write the verdicts
    to the file, too. With --resume, also make the missing verdicts of branches that ended earlier."""
    script: Path | None = None
    """The turns of --model scripted; the task's script.toml otherwise."""
    max_steps: Annotated[int, number("--max-steps", 1)] = 40
    """Turns of a branch."""
    branch_time: Annotated[float | None, number("--branch-time", MOMENT_S)] = None
    """Seconds of a branch; the task's own limit otherwise."""
    total_time: Annotated[float | None, number("--total-time", MOMENT_S)] = None
    """Limit of seconds for all branches together."""
    branch_tokens: Annotated[int | None, number("--branch-tokens", 1)] = None
    """Tokens of a branch."""
    total_tokens: Annotated[int | None, number("--total-tokens", 1)] = None
    """Limit of tokens for all branches together."""
    memories: Annotated[int, number("--memories", 0, 50)] = 0
    """Show the agents up to so many past branches that passed at similar tasks (`braid memory add` stores them)."""
    json: Annotated[bool, Flag] = False
    """Print JSON: the rollout's id first, one object for each branch that ends, the counts last."""

    def service(self) -> dict[str, str]:
        """The settings of the fork that flags override."""
        given = {"model": self.model_name, "base_url": self.base_url}
        return {name: value for name, value in given.items() if value}

    def temperatures(self) -> tuple[float, ...]:
        """The numbers of `--temperature`. Raises ForkError for anything else."""
        from agents.fork.fork_error import ForkError

        try:
            found = tuple(float(each) for each in self.temperature.split(",")) if self.temperature else ()
        except ValueError:
            found = (math.nan,)
        if not all(0 <= each < math.inf for each in found):
            raise ForkError(
                f"--temperature {self.temperature}: expected numbers from 0 on with commas, as in 0.2,0.6,1.0"
            )
        return found
