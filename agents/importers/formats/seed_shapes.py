"""The formats of `--shape seed`: the twelve importers of the seed documents, with the shapes that they read."""

from collections.abc import Mapping, Sequence
from functools import partial

from agents.importers.formats.seed_results import RESULTS, result_lines
from agents.importers.formats.seed_spans import DIALECTS, spans
from agents.importers.traces.episode_reader import base_name, is_json, members
from agents.importers.traces.format import FileUse, Format, Head, Part, Read


def _recognise(fields: Sequence[str], names: Sequence[str], head: Head) -> bool:
    return any(is_json(name) and _fits(fields, members(_without_comments(head(name)))) for name in names)


def _fits(fields: Sequence[str], found: Mapping[str, bytes]) -> bool:
    return all(field in found if field[0] != "!" else field[1:] not in found for field in fields)


def _without_comments(head: bytes) -> bytes:
    """Return a head without the leading # lines that the seed's files may have."""
    while head.lstrip().startswith(b"#"):
        head = head.lstrip().partition(b"\n")[2]
    return head


def _plan(names: Sequence[str], _head: Head) -> list[Part]:
    return [Part(base_name(name), (FileUse(name, comments=True),)) for name in names if is_json(name)]


def _format(name: str, fields: Sequence[str], read: Read) -> Format:
    return Format(
        name=name,
        about=f"the shape of {name} that the seed documents describe",
        rollout="task or trace",
        verdict="as the line says it",
        unknown="whatever a line leaves out",
        recognise=partial(_recognise, tuple(fields)),
        plan=_plan,
        read=read,
    )


SEED_SHAPES: dict[str, Format] = {
    name: _format(name, (key, *fields), result_lines(name, key, tell)) for name, (key, fields, tell) in RESULTS.items()
} | {name: _format(name, dialect.fields, spans(name, dialect)) for name, dialect in DIALECTS.items()}
