"""docs/configuration.md: every setting with its variable, type, default and meaning, from the settings' model."""

from collections.abc import Iterator

from pydantic import BaseModel

from streams.cluster.config import Settings
from streams.views.configuration import DELIMITER, ELSEWHERE, PREFIX
from streams.views.reference.field_table import about, cell, fields, models_in

_HEAD = """\
<!-- Generated from streams/cluster/config.py: braid schemas page configuration > docs/configuration.md -->

# Configuration

Settings come from `braid.toml` in the working directory (or the file that `BRAID_CONFIG` names), then from variables, then from flags;
the later one wins. A variable is `BRAID_` and the name in capitals, with two underscores for each point: `emission.judge.kind` is
`BRAID_EMISSION__JUDGE__KIND`. Lists and tables are JSON in a variable. `braid doctor` prints every value in force and where it comes
from, and names variables that resemble a setting. Secrets are never printed or logged.

```toml
kafka = "kafka-1:9092,kafka-2:9092"
prefix = "team-a."

[emission.judge]
kind = "anthropic"
model = "claude-sonnet-4-5"

[gateway]
port = 8790
```
"""

_ELSEWHERE = """\
## Variables that are no settings

| variable | |
|---|---|
| `BRAID_COMPILED` | `no`: build or run without compiled modules. |
| `BRAID_CONFIG` | The configuration file. |
| `BRAID_GATEWAY_TOKENS` | Passed on by docker-compose.yml as `BRAID_GATEWAY__TOKENS`. |
"""


def configuration_page() -> str:
    """The page, in Markdown."""
    assert all(f"`{name}`" in _ELSEWHERE for name in ELSEWHERE)
    lines, tables = [_HEAD, "## Settings\n", *_table(Settings, ())], dict[type[BaseModel], None]()
    for path, model in _sections(Settings, ()):
        lines += [f"\n## {'.'.join(path)}\n", f"{about(model)}\n", *_table(model, path)]
        tables |= dict.fromkeys(_nested(model))
    for model in [*dict.fromkeys([*_nested(Settings), *tables])]:
        lines += [f"\n## {model.__name__}\n", f"{about(model)}\n", *_table(model, None)]
    return "\n".join([*lines, "", _ELSEWHERE])


def _table(model: type[BaseModel], path: tuple[str, ...] | None) -> list[str]:
    """The settings of a section; for a model in a list or table the fields, which have no variable."""
    sections = {name for name, _ in _own_sections(model)}
    rows = []
    for each in fields(model):
        if each.name not in sections:
            name = (
                f"`{each.name}`"
                if path is None
                else f"`{'.'.join((*path, each.name))}`<br>`{_variable((*path, each.name))}`"
            )
            default = f"`{cell(each.default)}`" if each.default else ""
            rows.append(f"| {name} | {each.kind} | {default} | {cell(each.about)} |")
    return ["| setting | type | default | |", "|---|---|---|---|", *rows]


def _variable(path: tuple[str, ...]) -> str:
    return PREFIX + DELIMITER.join(path).upper()


def _own_sections(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield name, field.annotation


def _sections(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    for name, section in _own_sections(model):
        yield (*path, name), section
        yield from _sections(section, (*path, name))


def _nested(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Models in lists, tables and unions of a section."""
    sections = {section for _, section in _own_sections(model)}
    for field in model.model_fields.values():
        for found in models_in(field.annotation):
            if found not in sections:
                yield found
