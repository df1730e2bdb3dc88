"""Overrides of the pinned configuration (what-if): parts of the configuration replaced by `--set name=value`. Facts
cannot be set.

Sections have the same names in every configuration; the weights of the total and the limits of single tools have names
of the user's own. The configurations pinned in the log show whether there is one.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from agents.rollouts.policy import ClosingPolicy
from schemas.codec.body import first_problem
from schemas.emission import EmissionConfig
from streams.jobs.errors import ReplayError

Section = TypeVar("Section", bound=BaseModel)

CLOSING = "closing."
WEIGHT = "_weight"
WEIGHTS = ["ranking", "weights"]
TOOLS = ["summarize", "tools"]
HELD_AGAINST_EACH_OTHER = ("rewards", "version")
"""Sections in which one value may be invalid because of another."""


class UnfitError(ReplayError):
    """A configuration has no setting of the given name, but another configuration may have one."""


class Override(NamedTuple):
    """One setting that replaces another."""

    said: str
    """The override as given."""
    path: list[str]
    value: Any


class Overrides:
    """Settings that replace pinned ones."""

    def __init__(self, given: Iterable[str]) -> None:
        self._emission: list[Override] = []
        self._closing: list[Override] = []
        self._made: dict[str, EmissionConfig] = {}
        self._redact: bool | None = None
        for text in given:
            name, found, value = text.partition("=")
            if not found or not name:
                raise ReplayError(f"--set {text}: write NAME=VALUE, as in --set summarize.max_bytes=1200")
            if name.startswith(CLOSING):
                self._closing.append(Override(text, name.removeprefix(CLOSING).split("."), _value(value)))
            else:
                self._emission.append(Override(text, _path(name), _value(value)))
        self._require_known()

    def _require_known(self) -> None:
        """A name that no configuration has, or a value that is impossible, is found before anything is read."""
        self.policy(ClosingPolicy())
        for each in self._emission:
            try:
                alone = _applied(EmissionConfig(), [each])
            except UnfitError:
                continue  # the configurations in the log decide
            if each.path == ["redact"]:
                self._redact = alone.redact

    @property
    def touches_closing(self) -> bool:
        """Whether anything decides when rollouts close."""
        return bool(self._closing)

    @property
    def touches_emission(self) -> bool:
        """Whether any override changes the output."""
        return bool(self._emission)

    @property
    def depends_on_pinned(self) -> bool:
        """Whether validity depends on the log: names of weights and tools are free, and rewards depend on the version.

        All other settings fit every configuration.
        """
        return any(
            each.path[:2] in (WEIGHTS, TOOLS) or each.path[0] in HELD_AGAINST_EACH_OTHER for each in self._emission
        )

    @property
    def redact(self) -> bool | None:
        """Whether events are redacted, if that was overridden."""
        return self._redact

    def config(self, pinned: EmissionConfig) -> EmissionConfig:
        """A pinned configuration with the overrides. Raises ReplayError when it does not fit."""
        if not self._emission:
            return pinned
        known = self._made.get(pinned.text)
        if known is None:
            known = self._made[pinned.text] = _applied(pinned, self._emission)
        return known

    def policy(self, policy: ClosingPolicy) -> ClosingPolicy:
        """A closing policy with the overrides."""
        return _applied(policy, self._closing) if self._closing else policy


def _path(name: str) -> list[str]:
    # The weights of the total are a list; in overrides they are named by component.
    section, _, last = name.rpartition(".")
    if section == "rewards" and last.endswith(WEIGHT) and last != f"pass{WEIGHT}":
        return [*WEIGHTS, last.removesuffix(WEIGHT)]
    return name.removeprefix("emission.").split(".")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _applied(section: Section, given: list[Override]) -> Section:
    plain = section.model_dump(mode="json")
    if isinstance(section, EmissionConfig):
        plain["version"] = section.version  # version 1 is not in its own text
    for each in given:
        _put(plain, each.path, each)
    try:
        return type(section).model_validate(plain)
    except ValidationError as error:
        raise ReplayError(f"--set: {first_problem(error)}") from None


def _put(plain: Any, path: list[str], override: Override) -> None:
    name, *rest = path
    if not rest:
        plain[name] = override.value
    elif override.path[:-1] == WEIGHTS and isinstance(plain.get(name), list):
        _weigh(plain[name], override)
    elif isinstance(plain.get(name), dict):
        _put(plain[name], rest, override)
    elif override.path[:-1] == [*TOOLS, name]:
        whole = f"--set {'.'.join(override.path[:-1])}='{{\"{rest[0]}\": ...}}'"
        raise UnfitError(f"--set {override.said}: there are no limits for the tool {name!r}; give it some with {whole}")
    else:
        raise ReplayError(f"--set {override.said}: the configuration has no section {name!r}")


def _weigh(weights: list[dict[str, Any]], override: Override) -> None:
    """Weights are a list, and named by their keys."""
    name, known = override.path[-1], [weight["key"] for weight in weights]
    if name not in known:
        there = f"there is no weight {name!r}, there are {', '.join(known)}"
        raise UnfitError(f"--set {override.said}: {there}; name one of them, or set ranking.weights as a whole")
    weights[known.index(name)]["weight"] = override.value
