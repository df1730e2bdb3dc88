"""Numbers on the command line: their limits are checked before anything is read, asked or written."""

import math
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from schemas.errors import BraidError


class NumberError(BraidError):
    """A number that an option does not accept."""


@dataclass(frozen=True)
class Between:
    """The range of an option, both ends included; infinity and NaN are refused."""

    option: str
    least: float
    most: float = math.inf

    def __call__(self, kind: object, value: float | tuple[float, ...] | list[float] | None) -> None:
        """Raises NumberError for anything else; of several numbers each is checked."""
        if isinstance(value, tuple | list):
            for each in value:
                self(kind, each)
        elif value is not None and not (self.least <= value <= self.most and value != math.inf):
            wanted = f"at least {self.least:g}" if self.most == math.inf else f"{self.least:g} to {self.most:.15g}"
            raise NumberError(f"{self.option} {value}: give {wanted}")


def number(option: str, least: float, most: float = math.inf) -> Parameter:
    """The parameter of an option that takes a number."""
    return Parameter(validator=Between(option, least, most))


PORTS = 65_535
MOMENT_S = 0.001
"""The shortest time that an option accepts."""
MOST_EXACT = 2**52
"""Numbers up to it, and their sums, are exact in JSON."""

Slot = Annotated[int, number("--slot", 0)]
MetricsPort = Annotated[int, number("--metrics-port", 0, PORTS)]
Samples = Annotated[int, number("--samples", 1)]
