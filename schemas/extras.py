"""Packages that not every installation has. A missing one is an error that names the extra: `braidstream[export]`."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from schemas.errors import BraidError

Extra = Literal["export", "fork", "import", "judge", "language", "memory"]
"""The extras of pyproject.toml."""

OURS = frozenset({"schemas", "agents", "streams"})


class MissingExtraError(BraidError):
    """Something was asked for that needs a package of an extra."""


@contextmanager
def needs(extra: Extra, use: str) -> Iterator[None]:
    """Import the packages of an extra inside. Raises MissingExtraError that names the first missing extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in OURS:
            raise
        raise _missing(extra, use, package) from None


def require(extra: Extra, use: str, package: str) -> None:
    """Raise MissingExtraError where a package is not installed, without importing it."""
    if find_spec(package) is None:
        raise _missing(extra, use, package)


def _missing(extra: Extra, use: str, package: str) -> MissingExtraError:
    return MissingExtraError(f"{use} needs {package}: install braidstream[{extra}]")
