"""The recipe of an export: format, file, split, filters, and how rows are written. One directory has one recipe."""

from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

from agents.formats.selection import NUMBER_FILTERS, Filters, Split
from agents.formats.shape import PLAIN, FileKind, Format, Layout, Style
from schemas.extras import require
from streams.jobs.export.checkpoint import ExportError
from streams.jobs.export.duplicates import KINDS, Dedupe
from streams.jobs.export.ledger import NAMES as LEDGER_NAMES

SHARD_ROWS = 50_000


@dataclass(frozen=True)
class Recipe:
    """The rows to export, and their form."""

    form: Format
    kind: FileKind
    split: Split = field(default_factory=Split)
    filters: Filters = field(default_factory=Filters)
    eval_items: Path | None = None
    shard_rows: int = SHARD_ROWS
    redact: bool = True
    style: Style = PLAIN
    layout: Layout = "files"
    dedupe: Dedupe | None = None
    """Which rows that repeat an earlier one are left out."""

    @classmethod
    def of(cls, form: Format, kind: FileKind | None, **more: Any) -> "Recipe":
        """A recipe whose file suits its format, and whose filters can be met. Raises ExportError, or MissingExtraError for Parquet."""
        if kind is not None and kind not in form.files:
            raise ExportError(f"{form.name} has no {kind} form; leave --file out, or give --file {form.files[0]}")
        recipe = cls(form, kind or form.files[0], **({"layout": form.layouts[0]} | more))
        recipe._require_fitting()
        if recipe.kind == "parquet":
            require("export", f"braid export --format {form.name}", "pyarrow")
        for name, value in recipe.filters.wanted:
            if name in NUMBER_FILTERS and not isfinite(float(value)):
                raise ExportError(f"--filter {name}={value}: no number to compare with; give a finite one, as 0.5")
        return recipe

    def _require_fitting(self) -> None:
        """Raises ExportError for a choice that the format or the file does not have."""
        if self.style.arguments == "object" and not self.form.speech.objects:
            raise ExportError(f"{self.form.name} has arguments of one shape; leave --arguments object out")
        if self.style.arguments == "object" and self.kind == "parquet":
            raise ExportError(
                "--arguments object: a Parquet column would give every call the arguments of all the others, filled with nulls; "
                "leave --file parquet out, or --arguments object"
            )
        if self.style.loss != PLAIN.loss and self.form.name != "trl-sft":
            raise ExportError(
                f"--loss {self.style.loss} is for trl-sft; {self.form.name} has one way to say what is learnt"
            )
        if self.dedupe is not None and not self.form.needs <= {*KINDS}:
            raise ExportError(f"--dedupe is for formats that are made of rows; {self.form.name} tells whole branches")
        if self.layout not in self.form.layouts:
            raise ExportError(f"{self.form.name} has no layout {self.layout}; leave --layout out")
        if self.layout == "directory" and self.kind == "parquet":
            raise ExportError("--layout directory writes JSON files; leave --file parquet out")

    def names(self) -> list[str]:
        """The prefixes of its file names."""
        parts = [f"{part}-{split}" if part else split for part in self.form.columns for split, _ in self.split.shares]
        return [*parts, *LEDGER_NAMES]

    def plain(self, source: str) -> dict[str, Any]:
        """The members that two exports to one directory must share."""
        items = None if self.eval_items is None else sha256(read_bytes(self.eval_items)).hexdigest()
        return {
            "format": self.form.name,
            "file": self.kind,
            "source": source,
            "split": str(self.split),
            "filters": [f"{name}={value}" for name, value in self.filters.wanted],
            "eval_items": items,
            "redact": self.redact,
            # Only differences from the defaults: directories of earlier versions do not have these names.
            **{name: value for name, value in self.style._asdict().items() if value != getattr(PLAIN, name)},
            **({} if self.dedupe is None else {"dedupe": self.dedupe}),
            **({"layout": self.layout} if self.layout != self.form.layouts[0] else {}),
        }


def read_bytes(path: Path) -> bytes:
    """The content of a file. Raises ExportError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror}") from None
