"""The files next to the data of an export: its checkpoint, its manifest and its card.

The checkpoint is written last and decides: an export that it does not list did not happen. It has the read position of
every partition and the exported rollouts, so the next export to the directory adds only new ones.
"""

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from agents.audit.verifier_audit import rate_strength
from agents.evidence.signing import SigningKey
from agents.formats.shape import FileKind, Format, Layout, ToolUse
from schemas.base import Record
from schemas.codec.body import first_problem
from schemas.errors import BraidError
from schemas.evidence import AepRecord
from schemas.versions import RECORDS, latest
from streams.jobs.export.croissant import CROISSANT, write_croissant
from streams.jobs.export.ledger import EVIDENCE, FOLDER
from streams.jobs.export.shards import ALONE, Shard, partial, remove_file
from streams.jobs.export.whole_rollouts import UNKNOWN
from streams.log.durable_files import PARTIAL, digest_of, write_whole
from streams.log.letters import CODE_VERSION
from streams.log.manifest import CHECKPOINT, write_manifest
from streams.log.manifest import DATASET_MANIFEST as MANIFEST

CARD = "README.md"
METADATA = "metadata.json"
CHECKPOINT_VERSION = 3
PUBLISHING = ".export.publishing.json"
"""Names and digests of the files that are being published, from before the first is visible until the checkpoint lists
them.
"""
ALONES = "|".join(map(re.escape, ALONE))
_PUBLISHED = re.compile(rf"({FOLDER}/)?[\w-]+-[0-9]{{5,}}\.(jsonl|parquet)|[^/]+/({ALONES})")


class ExportError(BraidError):
    """The export cannot continue as requested."""


@dataclass
class State:
    """The state of an export directory."""

    recipe: dict[str, Any]
    """The options of the export: format, file, source, split, filters, evaluation items. A different recipe needs a
    different directory.
    """
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    """By topic and partition, the offset to continue from."""
    seen: dict[int, int] = field(default_factory=dict)
    """The rollouts that were taken, with the closing evidence of each, both in short."""
    numbers: dict[str, int] = field(default_factory=dict)
    """By the beginning of its name, the number of the next file."""
    shards: list[Shard] = field(default_factory=list)
    ledgers: list[Shard] = field(default_factory=list)
    """The files with the provenance of rows."""
    totals: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    contaminated: Counter[str] = field(default_factory=Counter)
    not_carried: Counter[str] = field(default_factory=Counter)
    """Messages by the field that the format has no place for."""
    tools: dict[str, str] = field(default_factory=dict)
    """By name, the definitions of tools in the file next to the rows; the first one counts."""
    languages: list[str] = field(default_factory=list)
    """Languages of code that rows run, for the same formats."""
    verifiers: dict[str, list[int]] = field(default_factory=dict)
    """By verifier, how many passes and fails the evidence of the exported rollouts states."""
    configs: Counter[str] = field(default_factory=Counter)
    """Rollouts by the digest of the configuration they were made under."""
    reward_range: list[float] | None = None
    """The lowest and the highest reward that the rules of the exported rollouts allow; None without any reward."""
    inputs: list[dict[str, Any]] = field(default_factory=list)
    """The positions that each export read."""
    kept: int = 0
    """How many signatures of kept rows there are, if duplicates are left out."""
    kept_sha256: str = ""
    """The digest of the file of signatures."""
    rollouts: list[str] | None = field(default_factory=list)
    """The rollouts whose evidence is in the dataset, by id; None if an earlier version began it and did not record
    them.
    """
    replaces: list[str] = field(default_factory=list)
    """Files of an earlier export, to be removed when this one is complete."""

    def widen(self, lowest: float, highest: float) -> None:
        """Note a range of rewards."""
        known = self.reward_range or [lowest, highest]
        self.reward_range = [min(known[0], lowest), max(known[1], highest)]

    def use(self, uses: ToolUse) -> None:
        """Note the tools that a row uses."""
        for name, definition in uses.tools.items():
            self.tools.setdefault(name, definition)
        self.languages = sorted({*self.languages, *uses.languages})

    def judge(self, evidence: Iterable[AepRecord]) -> None:
        """Note the outcomes that evidence states."""
        for result in (result for record in evidence for result in record.verifier_results):
            self.verifiers.setdefault(result.verifier_id, [0, 0])[not result.passed] += 1

    def packed(self) -> bytes:
        """The checkpoint."""
        seen = b"".join(each.to_bytes(8, "big") for pair in sorted(self.seen.items()) for each in pair)
        plain = vars(self) | {
            "version": CHECKPOINT_VERSION,
            "offsets": {
                topic: {str(at): offset for at, offset in each.items()} for topic, each in self.offsets.items()
            },
            "seen": base64.b64encode(seen).decode(),
            "shards": [shard._asdict() for shard in self.shards],
            "ledgers": [shard._asdict() for shard in self.ledgers],
        }
        del plain["replaces"]
        return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS) + b"\n"

    def save(self, folder: Path) -> None:
        """Write the checkpoint."""
        write_whole(folder / CHECKPOINT, self.packed())


class _Checkpoint(BaseModel):
    """The shape of a checkpoint."""

    version: int
    recipe: dict[str, Any]
    offsets: dict[str, dict[int, int]]
    seen: str
    numbers: dict[str, int]
    shards: list[Shard]
    ledgers: list[Shard]
    totals: Counter[str]
    rejected: Counter[str]
    contaminated: Counter[str]
    configs: Counter[str]
    inputs: list[dict[str, Any]]
    rollouts: list[str] | None = None
    reward_range: list[float] | None = None
    not_carried: Counter[str] = Counter()
    tools: dict[str, str] = {}
    languages: list[str] = []
    kept: int = 0
    kept_sha256: str = ""
    verifiers: dict[str, list[int]] = {}


def load_state(folder: Path, recipe: dict[str, Any], *, from_beginning: bool) -> State:
    """The state of a directory; a new one if there is none, or if everything is to be exported again. Raises
    ExportError.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        return State(recipe)
    try:
        plain = _Checkpoint.model_validate_json(path.read_bytes())
        state = State(**{name: value for name, value in plain if name != "version"})
        state.seen = _seen(plain.seen, plain.version)
    except ValidationError as error:
        why = first_problem(error)
        raise ExportError(f"{path}: not a checkpoint of an export ({why}); export to another directory") from None
    except (ValueError, OSError) as error:
        raise ExportError(f"{path}: not a checkpoint of an export ({error}); export to another directory") from None
    if from_beginning:
        return State(recipe, numbers=state.numbers, replaces=[shard.name for shard in (*state.shards, *state.ledgers)])
    differing = sorted(
        name for name in recipe.keys() | state.recipe.keys() if recipe.get(name) != state.recipe.get(name)
    )
    if differing:
        name = differing[0]
        raise ExportError(
            f"{folder} holds an export with {name} {state.recipe.get(name)!r}, not {recipe.get(name)!r}; "
            "give another directory, or --from-beginning to replace it"
        )
    return state


def _seen(text: str, version: int) -> dict[int, int]:
    packed = base64.b64decode(text, validate=True)
    numbers = [int.from_bytes(packed[at : at + 8], "big") for at in range(0, len(packed), 8)]
    return dict.fromkeys(numbers, UNKNOWN) if version < 3 else dict(zip(numbers[::2], numbers[1::2], strict=True))


def note_publishing(folder: Path, shards: Iterable[Shard]) -> None:
    """Note which files are about to be published: an export that is killed now leaves only these."""
    write_whole(folder / PUBLISHING, orjson.dumps({shard.name: shard.sha256 for shard in shards}))


def clear_leftovers(folder: Path, state: State, names: Iterable[str], layout: Layout) -> None:
    """Remove the files of an export that was killed. Raises ExportError for files that may belong to another program."""
    known = {shard.name for shard in (*state.shards, *state.ledgers)} | set(state.replaces)
    for name, digest in _noted(folder).items():
        partial(folder, name).unlink(missing_ok=True)
        path = folder / name
        if name not in known and path.is_file() and digest_of(path) == digest:
            remove_file(folder, name)
    alone = rf"|[^/]+/({ALONES})" if layout == "directory" else ""
    ours = re.compile(
        rf"(({'|'.join(map(re.escape, {*names, *state.numbers}))})-[0-9]{{5,}}\.(jsonl|parquet){alone})({PARTIAL})?"
    )
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not ours.fullmatch(name) or name in known:
            continue
        if not (folder / CHECKPOINT).exists() and path.suffix != PARTIAL:
            raise ExportError(
                f"{path}: there already, and not from an export that is known here; give another directory"
            )
        remove_file(folder, name)
    (folder / PUBLISHING).unlink(missing_ok=True)


def _noted(folder: Path) -> dict[str, str]:
    """The files that an interrupted export was about to publish, by name; empty if no note can be read."""
    try:
        noted = orjson.loads((folder / PUBLISHING).read_bytes())
    except (OSError, ValueError):
        return {}
    found = noted.items() if isinstance(noted, dict) else ()
    return {name: digest for name, digest in found if _PUBLISHED.fullmatch(name)}


def write_dataset_manifest(folder: Path, state: State, form: Format, key: SigningKey | None) -> None:
    """Write the contents and sources of the dataset; signed, if there is a key."""
    rollouts = state.totals["rollouts"]
    manifest: dict[str, Any] = {
        "format": form.name,
        "recipe": state.recipe,
        "code_version": CODE_VERSION,
        "schemas": {name: _schema(record) for name, record in sorted(RECORDS.items())},
        "config_digests": dict(sorted(state.configs.items())),
        "reward_range": state.reward_range,
        # The ids of both decisions of every rollout are in the closing records of these files.
        "closures": {
            "settled": rollouts,
            "closed": rollouts,
            "files": [shard.name for shard in state.ledgers if shard.name.startswith(EVIDENCE)],
        },
        "inputs": state.inputs,
        "counts": dict(sorted(state.totals.items())),
        "rejected": dict(sorted(state.rejected.items())),
        "contaminated": dict(sorted(state.contaminated.items())),
        "not_carried": dict(sorted(state.not_carried.items())),
        "rollouts": state.rollouts,
        "checkpoint": sha256(state.packed()).hexdigest(),
        "card": sha256((folder / CARD).read_bytes()).hexdigest(),
        "croissant": sha256((folder / CROISSANT).read_bytes()).hexdigest(),
        **({"metadata": sha256((folder / METADATA).read_bytes()).hexdigest()} if form.tools_beside else {}),
        "files": [shard._asdict() for shard in state.shards],
        "provenance": [shard._asdict() for shard in state.ledgers],
    }
    write_manifest(folder / MANIFEST, manifest, key)


def _write_metadata(folder: Path, state: State, form: Format) -> None:
    """Write the definitions of tools, for formats that keep them in a separate file."""
    if form.tools_beside:
        tools = [orjson.loads(definition) for _, definition in sorted(state.tools.items())]
        metadata = {"custom_tools": tools, "code_enabled": state.languages, "browser_enabled": False}
        write_whole(folder / METADATA, orjson.dumps(metadata, option=orjson.OPT_INDENT_2) + b"\n")


def _schema(record: type[Record]) -> dict[str, Any]:
    version = latest(record)
    return {"version": version.number, "fingerprint": version.fingerprint.hex()}


def write_card(folder: Path, state: State, form: Format, kind: FileKind, layout: Layout) -> None:
    """Write the dataset card for people and for `load_dataset`; the same in Croissant; and definitions of tools."""
    parts: dict[str, dict[str, list[str]]] = {}
    for shard in state.shards:
        parts.setdefault(shard.part or "default", {}).setdefault(shard.split, []).append(shard.name)
    lines = ["---", "configs:"]
    for part, splits in sorted(parts.items()):
        lines += [f"- config_name: {part}", "  data_files:"]
        for split, names in sorted(splits.items()):
            path = f"{names[0].rpartition('-')[0]}-*.{kind}" if layout == "files" else f"*/{form.alone}"
            lines += [f"  - split: {split}", f"    path: {path!r}" if "*/" in path else f"    path: {path}"]
    lines = [*lines, "---"] if parts else []
    lines += [
        "", f"# {form.name}", "", f"{form.about}. Made by Braidstream {CODE_VERSION} from ranked agent rollouts.", "",
        "| | |", "|---|---|",
        *(f"| {name.replace('_', ' ')} | {count:,} |" for name, count in sorted(state.totals.items())),
        *([] if state.reward_range is None else [f"| reward_range | {state.reward_range[0]:g} to {state.reward_range[1]:g} |"]), "",
    ]  # fmt: skip
    lines += _table("Left out", "reason", state.rejected)
    lines += _table("Repeats of evaluation items", "item", state.contaminated)
    lines += _table("Not carried", "field that the format has no place for", state.not_carried, "messages")
    lines += _verifiers(state.verifiers)
    if layout == "files":
        lines += ["## Files", "", "| file | rows | SHA-256 |", "|---|---:|---|"]
        lines += [f"| {shard.name} | {shard.rows:,} | `{shard.sha256}` |" for shard in state.shards]
    redacted = "Rows were redacted." if state.recipe.get("redact") else "Redaction was switched off."
    lines += ["", f"Where every row came from stands in `{FOLDER}/`, and all of it in `{MANIFEST}`. {redacted}", ""]
    lines += ["`braid verify` checks every file and row here against the signed evidence.", ""]
    write_whole(folder / CARD, "\n".join(lines).encode())
    write_croissant(folder, form, kind, state.shards, redacted=bool(state.recipe.get("redact")))
    _write_metadata(folder, state, form)


def _verifiers(counts: Mapping[str, list[int]]) -> list[str]:
    """The verifiers behind the rows; `braid audit verifiers` checks more than their rates."""
    if not counts:
        return []
    rows = []
    for name, (passes, fails) in sorted(counts.items()):
        strength = rate_strength(passes, fails)
        rows.append(
            f"| {escape(name.replace('|', '/'))} | {passes:,} | {fails:,} | {'-' if strength is None else f'{strength:g}'} |"
        )
    return ["## Verifiers", "", "| verifier | pass | fail | strength by its rates |", "|---|---:|---:|---:|", *rows, ""]


def _table(title: str, what: str, counts: Mapping[str, int], counted: str = "rows") -> list[str]:
    if not counts:
        return []
    rows = [f"| {name.replace('|', '/')} | {count:,} |" for name, count in sorted(counts.items())]
    return [f"## {title}", "", f"| {what} | {counted} |", "|---|---:|", *rows, ""]
