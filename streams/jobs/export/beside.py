"""Datasets inside the directory whose log they are exported from: `--format` of `braid run` and `braid replay`."""

from collections.abc import Iterable
from pathlib import Path

from agents.formats import FORMATS
from agents.formats.shape import Attestor
from streams.cluster.config import Settings
from streams.cluster.signing_keys import signing_key, trusted_keys
from streams.jobs.export.checkpoint import ExportError
from streams.jobs.export.export import export
from streams.jobs.export.export_counts import Counts
from streams.jobs.export.recipe import Recipe
from streams.log.file_reader import FileReader
from streams.log.progress import Say


def require_formats(names: Iterable[str]) -> None:
    """Raises ExportError for a name that is not a format."""
    for name in names:
        if name not in FORMATS:
            raise ExportError(f"there is no format {name!r}; there are {', '.join(FORMATS)}")


def require_recipes(names: Iterable[str]) -> None:
    """Raises ExportError for a name that is no format, MissingExtraError for one whose files cannot be written here."""
    require_formats(names)
    for name in names:
        Recipe.of(FORMATS[name], None)


async def export_beside(directory: Path, name: str, settings: Settings, say: Say, *, sign: bool = True) -> Counts:
    """Export the log in `directory` to `directory/name`, replacing an earlier export there.

    The result is that of `braid export --format NAME --from-dir DIRECTORY --out DIRECTORY/NAME`.
    """
    recipe = Recipe.of(FORMATS[name], None, redact=settings.emission.redact)
    attestor = Attestor(signing_key(settings), trusted_keys(settings)) if sign else None
    return await export(
        FileReader(directory), directory / name, recipe, attestor=attestor, from_beginning=True, say=say
    )
