"""Options that several commands share, each with its help text in one place; and the base of option models.

A command with many options takes them as one frozen model. Its fields are the options; the text under a field is its help.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

Flag = Parameter(negative="")

Json = Annotated[bool, Parameter(negative="", help="Print one JSON object.")]
JsonCounts = Annotated[bool, Parameter(negative="", help="Print one JSON object with the counts.")]
KeepGoing = Annotated[bool, Parameter(negative="", help="Exit with 0 although lines were bad.")]
SignVerdicts = Annotated[
    bool,
    Parameter(
        negative="",
        help="Vouch for the verdicts of the files: sign those without a signature with verifier.signing_key.",
    ),
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], Parameter(help="How much to say on standard error.")]
InputFiles = Annotated[
    list[Path],
    Parameter(
        help="NDJSON of events, verdicts and votes, or rollout-wire/v1 JSONL; - is standard input.",
        allow_leading_hyphen=True,
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    """The options of a command."""


@dataclass(frozen=True, kw_only=True)
class LogFlags(Flags):
    """The log to read: a directory, or the configured cluster."""

    from_dir: Path | None = None
    """Read the log that `braid run --out DIR` left in DIR, instead of Kafka."""
    unfinished: Annotated[bool, Flag] = False
    """Read it although it has no manifest, or has lost files since."""


def given(**options: Any) -> dict[str, Any] | None:
    """The options that have a value, to replace those of a section of the configuration; None if none has."""
    return {name: value for name, value in options.items() if value is not None} or None
