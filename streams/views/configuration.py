"""The effective configuration: every value, and its source. Secrets are masked, and variables with a typo named."""

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_origin

from pydantic import BaseModel, SecretStr
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource

from schemas.jsontext import compact
from streams.cluster.config import Settings, config_file
from streams.log.terminal_text import clean, line

PREFIX = "BRAID_"
DELIMITER = "__"
MASK = "********"
RESEMBLING = 0.8
"""Similarity from which a name is taken for a typo of another."""

ELSEWHERE = frozenset({"BRAID_COMPILED", "BRAID_CONFIG", "BRAID_GATEWAY_TOKENS"})
"""Variables of ours that are not settings: `no` for Python only, the configuration file, a token that
docker-compose.yml passes on.
"""

_NOTHING = object()


class Setting(NamedTuple):
    """One value of the configuration."""

    name: str
    """As in braid.toml: `emission.judge.kind`."""
    value: str
    """As text, secrets masked."""
    source: str
    """flag, the variable, the file, or default."""


class UnknownVariable(NamedTuple):
    """A variable that begins like ours and belongs to no setting."""

    name: str
    meant: str | None
    """The setting that it resembles."""


def effective(
    settings: Settings, flags: Mapping[str, Any] | None = None, local: Settings | None = None
) -> list[Setting]:
    """Every value in force, in the order of the model; `local` has the addresses of the local broker, if it is used."""
    sources = Sources(flags or {})
    found = []
    for path, value in leaves(settings):
        used = value if value or local is None else _at(dict(local), path)
        source = sources.of(path) if used == value else "the local broker"
        found.append(Setting(".".join(path), shown(used), source))
    return found


def leaves(model: BaseModel, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of a model that is no section of its own."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def shown(value: Any) -> str:
    """A value as people read it; a secret is never among it."""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if value is None:
        return ""
    if isinstance(value, str | Path):
        return line(str(value), 200)
    return line(compact(clean(_plain(value))), 200)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return shown(value)
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value


class Sources:
    """The sources of values: flags over variables over the file over defaults."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self._flags = {name: value for name, value in flags.items() if value is not None}
        self._variables: Mapping[str, Any] = EnvSettingsSource(Settings)()
        self._file: Mapping[str, Any] = TomlConfigSettingsSource(Settings, config_file())()

    def of(self, path: tuple[str, ...]) -> str:
        """The source of the value at a path."""
        if _at(self._flags, path) is not _NOTHING:
            return "flag"
        if _at(self._variables, path) is not _NOTHING:
            return f"variable {_variable(path)}"
        if _at(self._file, path) is not _NOTHING:
            return f"file {config_file()}"
        return "default"


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for name in path:
        if isinstance(found, BaseModel):
            found = dict(found)
        if not isinstance(found, Mapping) or name not in found:
            return _NOTHING
        found = found[name]
    return found


def _variable(path: tuple[str, ...]) -> str:
    """The variable that sets a path: its own, or one with a whole section as JSON."""
    given = {name.upper(): name for name in os.environ}
    for end in range(len(path), 0, -1):
        name = PREFIX + DELIMITER.join(path[:end]).upper()
        if name in given:
            return given[name]
    return PREFIX + DELIMITER.join(path).upper()


class Known(NamedTuple):
    """The variables that set something."""

    names: frozenset[str]
    """A variable for each value, and one for each section as JSON."""
    open_ended: tuple[str, ...]
    """Settings that may be followed by names of the user's own: tables such as the tools of `emission.summarize`."""


def known_variables() -> Known:
    """The variables that the model reads."""
    fields = list(_fields(Settings))
    names = {PREFIX + DELIMITER.join(path).upper() for path, _ in fields}
    tables = tuple(PREFIX + DELIMITER.join((*path, "")).upper() for path, kind in fields if get_origin(kind) is dict)
    return Known(frozenset(names) | ELSEWHERE, tables)


def _fields(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, field in model.model_fields.items():
        yield (*path, name), field.annotation
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, (*path, name))


def unknown_variables(environment: Mapping[str, str]) -> list[UnknownVariable]:
    """Variables that begin with BRAID_ and belong to no setting: most often a typo."""
    known = known_variables()
    found = []
    for name in sorted(environment):
        variable = name.upper()  # settings are read whatever the case
        if variable.startswith(PREFIX) and variable not in known.names and not variable.startswith(known.open_ended):
            close = get_close_matches(variable, known.names, n=1, cutoff=RESEMBLING)
            found.append(UnknownVariable(name, close[0] if close else None))
    return found
