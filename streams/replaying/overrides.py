"""What-if: parts of the configuration replaced by `--set name=value`. Facts cannot be set."""

import json
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agents.rollouts.decide import ClosingPolicy
from schemas.avro_body import first_problem
from schemas.emission import EmissionConfig
from streams.replaying.logs import ReplayError

Section = TypeVar("Section", bound=BaseModel)

CLOSING = "closing."
WEIGHT = "_weight"


class Overrides:
    """Settings that hold instead of those that were pinned."""

    def __init__(self, given: Iterable[str]) -> None:
        self._emission: list[tuple[list[str], Any]] = []
        self._closing: list[tuple[list[str], Any]] = []
        self._made: dict[str, EmissionConfig] = {}
        for text in given:
            name, found, value = text.partition("=")
            if not found or not name:
                raise ReplayError(f"--set {text}: write NAME=VALUE, as in --set summarize.max_bytes=1200")
            if name.startswith(CLOSING):
                self._closing.append((name.removeprefix(CLOSING).split("."), _value(value)))
            else:
                self._emission.append((_path(name), _value(value)))
        self.config(EmissionConfig())  # what cannot be set is found before anything is read
        self.policy(ClosingPolicy())

    @property
    def touches_closing(self) -> bool:
        """Whether anything decides when rollouts close."""
        return bool(self._closing)

    @property
    def touches_emission(self) -> bool:
        """Whether anything decides what is emitted."""
        return bool(self._emission)

    @property
    def redact(self) -> bool | None:
        """Whether events are redacted, where that was set."""
        said = any(path == ["redact"] for path, _ in self._emission)
        return self.config(EmissionConfig()).redact if said else None

    def config(self, pinned: EmissionConfig) -> EmissionConfig:
        """A pinned configuration with what was set."""
        if not self._emission:
            return pinned
        known = self._made.get(pinned.text)
        if known is None:
            known = self._made[pinned.text] = _applied(pinned, self._emission)
        return known

    def policy(self, policy: ClosingPolicy) -> ClosingPolicy:
        """A closing policy with what was set."""
        return _applied(policy, self._closing) if self._closing else policy


def _path(name: str) -> list[str]:
    # The weights of the total are a list; people name them by what they weigh.
    section, _, last = name.rpartition(".")
    if section == "rewards" and last.endswith(WEIGHT) and last != f"pass{WEIGHT}":
        return ["ranking", "weights", last.removesuffix(WEIGHT)]
    return name.removeprefix("emission.").split(".")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _applied(section: Section, given: list[tuple[list[str], Any]]) -> Section:
    plain = section.model_dump(mode="json")
    for path, value in given:
        _put(plain, path, value, ".".join(path))
    try:
        return type(section).model_validate(plain)
    except ValidationError as error:
        raise ReplayError(f"--set: {first_problem(error)}") from None


def _put(plain: Any, path: list[str], value: Any, whole: str) -> None:
    name, *rest = path
    if isinstance(plain, list):  # weights, by their key
        found = next((item for item in plain if item.get("key") == name), None)
        if found is None or rest:
            known = ", ".join(str(item.get("key")) for item in plain)
            raise ReplayError(f"--set {whole}: there is no {name!r}; there are {known}")
        found["weight"] = value
    elif not rest:
        plain[name] = value
    elif isinstance(plain.get(name), dict | list):
        _put(plain[name], rest, value, whole)
    else:
        raise ReplayError(f"--set {whole}: the configuration has no section {name!r}")
