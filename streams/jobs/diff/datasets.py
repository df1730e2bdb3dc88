"""The datasets of `braid export`: rows in a trainer's format, and their provenance."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from schemas.extras import require
from streams.jobs.diff.side import About, Row, hashed
from streams.jobs.errors import ReplayError
from streams.jobs.export.ledger import EVIDENCE, ROWS
from streams.log.manifest import DATASET_MANIFEST as MANIFEST
from streams.log.manifest import listed, read_manifest

NO_RULE = "source"
"""The part of a recipe that is not a rule: where the records were read."""

DIGITS = 12
"""Digits of a configuration's digest that identify it."""


class DatasetSide:
    """The rows of one exported directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.rows: dict[About, Row] = {}
        self.rollouts: set[str] = set()
        self.rules: dict[str, Any] = dict(read_manifest(directory.parent).get("rules", {}))  # `braid replay --format`
        self._made: set[str] = set()
        """Ids of everything that was made of these rollouts, exported or not."""
        try:
            self._read(orjson.loads((directory / MANIFEST).read_bytes()))
        except OSError as error:
            raise ReplayError(f"{directory}: {error}; `braid verify {directory}` tells more") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReplayError(
                f"{directory} is not as `braid export` left it ({error!r}); `braid verify {directory}` tells more"
            ) from None

    def _read(self, manifest: dict[str, Any]) -> None:
        """Read everything: evidence, provenance of rows, and their content."""
        form: str = manifest["format"]
        self.rules |= {name: rule for name, rule in manifest["recipe"].items() if name != NO_RULE}
        self.rules["configurations"] = sorted(digest[:DIGITS] for digest in manifest["config_digests"])
        self.rules |= {f"left out as {why}": count for why, count in manifest["rejected"].items()}
        origins: dict[tuple[str, int], dict[str, Any]] = {}
        for name in listed(manifest, "provenance"):
            for line in _lines(self._directory / name):
                if name.startswith(ROWS):
                    origins[line["file"], line["row"]] = line
                elif name.startswith(EVIDENCE) and "closing" in line:
                    self.rollouts.add(line["run_id"].rpartition("/")[0])
                    self._made.update(each["record_id"] for each in line["closing"]["emitted"])
        seen: Counter[About] = Counter()
        for name, shard in listed(manifest, "files").items():
            kind = f"{form} {shard['part']}" if shard["part"] else form
            for number, content in enumerate(_rows(self._directory / name)):
                origin = origins[name, number]
                records = origin["records"]
                branches = {branch for record in records for branch in record.get("branches", ())}
                about = About(kind, origin["rollout_id"], tuple(sorted(branches)))
                made_of = tuple([record["record_id"] for record in records])
                self.rows[about._replace(number=seen[about])] = Row(hashed(content), made_of)
                seen[about] += 1
        self.kinds: list[str] = sorted({about.kind for about in self.rows}) or [form]

    def why(self, about: About, row: Row, /) -> str:
        """The known facts about a missing row: a manifest counts the rows left out, and does not list them."""
        if about.rollout_id not in self.rollouts:
            return "the rollout is not there"
        return "left out of the export" if self._made.issuperset(row.made_of) else "not made, or left out of the export"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as source:
        yield from map(orjson.loads, source)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix != ".parquet":
        yield from _lines(path)
        return
    require("export", f"{path}: reading Parquet", "pyarrow")
    from streams.jobs.export.parquet_file import read_parquet

    yield from read_parquet(path)
