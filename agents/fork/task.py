"""A task: the instruction of the agents, the files they start with, and the tests of their work.

The directory is Harbor's (instruction.md, task.toml, environment/, tests/, solution/). Settings of ours stand under
`[metadata.braid]`, which other runners ignore:

    [metadata.braid]
    required = ["build"]                # the verdicts a branch needs
    protected = ["checks/**"]           # files an agent must not change
    tests = "apart"                     # the tests run where the work is not, and start it with `work`
    install = ["npm", "ci"]             # optional, before the tests; and `build` after it
    outputs = ["node_modules/**"]       # what of theirs the tests need

    [metadata.braid.page]               # for the visual verifier
    path = "index.html"
    [[metadata.braid.page.probe]]
    name = "three cards"
    script = "document.querySelectorAll('.card').length === 3"

    [[metadata.braid.criteria]]         # checks of the files that are left behind
    name = "has notes"
    method = "word_count_min"
    path = "NOTES.md"
    count = 50
"""

from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agents.criteria.criterion import ALL_TOGETHER, Criterion
from agents.workspace.files import File, Files, digest
from schemas.errors import BraidError
from schemas.jsontext import compact

NOT_WORKSPACE = ("Dockerfile", "docker-compose.yaml", "docker-compose.yml", ".dockerignore")
"""Files of environment/ that build an image: the agent does not start with them."""

MAX_INSTRUCTION = 64 * 1024


class TaskError(BraidError):
    """An invalid task directory; the message has the file, the field, and the reason."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class _Tolerant(BaseModel):
    """Settings of a shared format, in which other runners may have further ones."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Probe(_Part):
    """A probe: a question about the page."""

    name: str = Field(min_length=1)
    script: str = Field(min_length=1)
    """A JavaScript expression that is true when the probe holds."""


class Page(_Part):
    """The page that a visual verifier opens."""

    path: str = "index.html"
    """Relative to the workspace."""
    probe: tuple[Probe, ...] = ()


def _is_together(tests: Any) -> bool:
    return bool(tests == "together")


def _is_empty(value: Any) -> bool:
    return not value


class BraidOptions(_Part):
    """`[metadata.braid]`."""

    required: tuple[str, ...] = ("build",)
    """The verdicts a branch needs for an objective status."""
    protected: tuple[str, ...] = ()
    """Patterns of files that an agent must not change."""
    install: tuple[str, ...] = ()
    """The command that installs the dependencies of the work; empty: none."""
    build: tuple[str, ...] = ()
    """The command that builds the work; empty: none."""
    # Left out of the digest if they are empty, so that older tasks keep theirs.
    outputs: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    """Patterns of the files from install and build that the tests need; all others are dropped."""
    tests: Literal["together", "apart"] = Field(default="together", exclude_if=_is_together)
    """apart: the tests cannot see the work, and run it with the program `work`; together: tests and work share one view."""
    page: Page | None = None
    criteria: tuple[Criterion, ...] = ()
    """Checks of the files; each becomes a verdict of its name, and all together one named `criteria`."""

    @model_validator(mode="after")
    def _can_be_known(self) -> Self:
        names = [each.name for each in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError("two criteria have the same name")
        for verdict, source in (("visual", self.page), (ALL_TOGETHER, self.criteria)):
            if verdict in self.required and not source:
                raise ValueError(
                    f"required names {verdict}, but the task has no {'page' if source is None else verdict}"
                )
        return self


class Metadata(_Tolerant):
    """`[metadata]`: free, but for ours."""

    braid: BraidOptions = BraidOptions()


class AgentLimits(_Tolerant):
    """`[agent]`."""

    timeout_sec: float = Field(default=600.0, gt=0)


class VerifierLimits(_Tolerant):
    """`[verifier]`."""

    timeout_sec: float = Field(default=120.0, gt=0)


class Environment(_Tolerant):
    """`[environment]`."""

    build_timeout_sec: float = Field(default=600.0, gt=0)
    cpus: float = Field(default=1, gt=0)
    memory_mb: int = Field(default=2048, ge=16)
    storage_mb: int = Field(default=1024, ge=1)


class TaskToml(_Tolerant):
    """task.toml."""

    version: str = "1.0"
    metadata: Metadata = Metadata()
    agent: AgentLimits = AgentLimits()
    verifier: VerifierLimits = VerifierLimits()
    environment: Environment = Environment()


class Task(NamedTuple):
    """A task as a value: no part of it is read again later."""

    name: str
    """The name of its directory."""
    instruction: str
    options: TaskToml
    start: Files
    """The files that the agent starts with."""
    tests: Files
    """The files that verify the work; the agent is not given them."""

    @property
    def braid(self) -> BraidOptions:
        """The settings of `[metadata.braid]`."""
        return self.options.metadata.braid

    @property
    def digest(self) -> str:
        """SHA-256 of the task: instruction, options, start files and tests."""
        both = {f"environment/{path}": file for path, file in self.start.items()}
        both |= {f"tests/{path}": file for path, file in self.tests.items()}
        asked = {"instruction": self.instruction, **self.options.model_dump(mode="json")}
        return digest(both | {"task": File(compact(asked).encode())})

    def is_protected(self, path: str) -> bool:
        """Whether an agent must not change a file: a protected one, or its bytecode."""
        source = _source_of(path)
        return any(fnmatchcase(path, pattern) or fnmatchcase(source, pattern) for pattern in self.braid.protected)

    def is_output(self, path: str) -> bool:
        """Whether a file that install or build made is kept for the tests."""
        return any(fnmatchcase(path, pattern) for pattern in self.braid.outputs)


def _source_of(path: str) -> str:
    """The source module of a file in `__pycache__`; any other path unchanged."""
    folder, _, name = path.rpartition("/")
    if folder.rpartition("/")[2] != "__pycache__":
        return path
    return folder.removesuffix("__pycache__") + name.partition(".")[0] + ".py"
