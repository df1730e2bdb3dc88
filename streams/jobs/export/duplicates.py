"""Rows that repeat an earlier row of the dataset, left out: equal texts, or texts that share most of their words.

The first one stays, in the order of the export. The samples of one task are one unit, so groups stay whole. Signatures
of kept rows are stored in a file beside the checkpoint, so that a later export to the same directory leaves out rows
that repeat an earlier one: signatures of a fixed size, without the text of the rows. Importing this module for `near`
needs datasketch (the extra `export`).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Final, Literal, TypeVar

from agents.formats.limits import Spoken, messages_of
from agents.formats.shape import Group, Kind
from schemas.errors import BraidError
from schemas.extras import needs
from schemas.training import DpoRecord, SftRecord
from streams.log.durable_files import write_whole

Dedupe = Literal["exact", "near"]

FILE: Final = ".export.kept"
"""The file of the signatures of kept rows."""

PERMUTATIONS: Final = 64
BANDS: Final = 12
ROWS: Final = 5
"""Of 64 hash values 12 bands of 5: of two texts that share 80 % of their shingles, 99 of 100 pairs meet in a band; of two that share
half, 32 of 100, which are then told apart by all values."""

ALIKE: Final = 0.8
"""Share of equal hash values from which two texts are near duplicates."""

WORDS: Final = 3
"""Words of a shingle."""

KINDS: Final[tuple[Kind, ...]] = ("sft", "dpo", "ppo")
"""Records that have a text of their own."""

_Row = TypeVar("_Row", SftRecord, DpoRecord)
_word: Final = re.compile(r"\w+")


class DuplicateError(BraidError):
    """The file of signatures cannot be used."""


class Duplicates:
    """The signatures of all units that were kept."""

    def __init__(self, kind: Dedupe) -> None:
        self.kind = kind
        self.size = 16 if kind == "exact" else 4 * PERMUTATIONS
        """Bytes of a signature."""
        self._sign: Callable[[str], bytes] = _exact if kind == "exact" else _near()
        self._kept = bytearray()
        self._known: set[bytes] = set()
        self._bands: dict[bytes, int] = {}

    @property
    def count(self) -> int:
        """The number of kept units."""
        return len(self._kept) // self.size

    def select(self, group: Group, kinds: Sequence[Kind]) -> tuple[Group, list[str]]:
        """Return the group without rows that repeat an earlier one, and the reason of each row that was left out."""
        reasons: list[str] = []
        if "sft" in kinds:
            group = replace(group, sft=self._each(group.sft, reasons))
        if "dpo" in kinds:
            group = replace(group, dpo=self._each(group.dpo, reasons))
        if "ppo" in kinds and group.ppo and not self._takes("\n".join([_text(row, self.kind) for row in group.ppo])):
            reasons += [self._reason] * len(group.ppo)
            group = replace(group, ppo=())
        return group, reasons

    @property
    def _reason(self) -> str:
        return "duplicate" if self.kind == "exact" else "near_duplicate"

    def _each(self, rows: tuple[_Row, ...], reasons: list[str]) -> tuple[_Row, ...]:
        kept = tuple([row for row in rows if self._takes(f"{type(row).__name__}\n{_text(row, self.kind)}")])
        reasons += [self._reason] * (len(rows) - len(kept))
        return kept

    def _takes(self, text: str) -> bool:
        """Keep a text unless it repeats another one; return whether it was kept."""
        signature = self._sign(text)
        if self._repeats(signature):
            return False
        self._note(signature)
        return True

    def _repeats(self, signature: bytes) -> bool:
        if self.kind == "exact":
            return signature in self._known
        found = {place for band in _bands(signature) if (place := self._bands.get(band)) is not None}
        return any(_alike(signature, self._at(place)) >= ALIKE for place in found)

    def _at(self, place: int) -> bytes:
        return bytes(self._kept[place * self.size : (place + 1) * self.size])

    def _note(self, signature: bytes) -> None:
        place = self.count
        self._kept += signature
        if self.kind == "exact":
            self._known.add(signature)
            return
        for band in _bands(signature):
            self._bands.setdefault(band, place)

    # -- the note ------------------------------------------------------------------------------------------------------

    def load(self, folder: Path, count: int, digest: str) -> None:
        """Read the signatures of earlier exports to a directory. Raises DuplicateError for a file that is not the
        checkpoint's.
        """
        if not count:
            return
        path = folder / FILE
        try:
            raw = path.read_bytes()[: count * self.size]  # more is of an export that was killed
        except OSError as error:
            raise DuplicateError(f"{path}: {error.strerror}; export again with --from-beginning") from None
        if len(raw) != count * self.size or sha256(raw).hexdigest() != digest:
            raise DuplicateError(f"{path}: not what the checkpoint says was kept; export again with --from-beginning")
        for at in range(0, len(raw), self.size):
            self._note(raw[at : at + self.size])

    def save(self, folder: Path) -> tuple[int, str]:
        """Write the signatures; return their count and digest for the checkpoint."""
        raw = bytes(self._kept)
        write_whole(folder / FILE, raw)
        return self.count, sha256(raw).hexdigest()


def _text(row: Spoken, kind: Dedupe) -> str:
    """The texts of a row, with their speakers.

    Near duplicates are found without system prompts: one long prompt that all rows share would make them all alike.
    """
    said: list[str] = []
    for each in messages_of(row):
        if kind == "near" and each.role in ("system", "developer"):
            continue
        said += [each.role, each.content or "", each.reasoning_content or ""]
        said += [f"{call.function.name} {call.function.arguments}" for call in each.tool_calls]
    return "\n".join(said)


def _exact(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def _near() -> Callable[[str], bytes]:
    """The signature of a text: the hash values of its shingles of words."""
    with needs("export", "--dedupe near"):
        from datasketch import MinHash  # type: ignore[import-untyped]

    empty = MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=_hash, scheme="affine32")

    def sign(text: str) -> bytes:
        made = empty.copy()
        made.update_batch({*_shingles(text)})
        signature: bytes = made.hashvalues.astype("<u4").tobytes()
        return signature

    return sign


def _shingles(text: str) -> Iterator[bytes]:
    """Runs of words; a text of fewer words is one. Texts without any word are compared as they are."""
    words = _word.findall(text.lower())
    if not words:
        yield text.encode()
    for start in range(max(1, len(words) - WORDS + 1)) if words else ():
        yield " ".join(words[start : start + WORDS]).encode()


def _hash(shingle: bytes) -> int:
    return int.from_bytes(blake2b(shingle, digest_size=4).digest(), "little")


def _bands(signature: bytes) -> Iterator[bytes]:
    for band in range(BANDS):
        start = 4 * ROWS * band
        yield bytes([band]) + blake2b(signature[start : start + 4 * ROWS], digest_size=8).digest()


def _alike(one: bytes, other: bytes) -> float:
    """The share of equal hash values: an estimate of the share of shingles that two texts have in common."""
    pairs = zip(memoryview(one).cast("I"), memoryview(other).cast("I"), strict=True)
    return sum(left == right for left, right in pairs) / PERMUTATIONS
