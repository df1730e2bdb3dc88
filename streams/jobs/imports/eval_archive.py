"""Logs of Inspect (.eval): a zip whose members are packed with zstd, read a member at a time."""

import io
import lzma
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

if sys.version_info >= (3, 14):
    import zipfile

    from compression import zstd
else:
    from backports import zstd
    from backports.zstd import zipfile

MAGIC = b"PK\x03\x04"

HEADERS = ("header.json", "_journal/start.json")
"""The header of a finished log, and that of an unfinished one."""

_DAMAGED = (
    OSError, EOFError, ValueError, KeyError, IndexError, RuntimeError, OverflowError, struct.error, zlib.error, lzma.LZMAError,
    zstd.ZstdError, zipfile.BadZipFile,
)  # fmt: skip
"""Raised when reading an archive that is damaged or not an archive."""


class ArchiveError(OSError):
    """An archive that cannot be read."""


class Member(NamedTuple):
    """A file in the archive."""

    name: str
    is_header: bool
    packed: int
    """Its bytes in the archive."""


class EvalArchive:
    """An open log."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def members(self) -> list[Member]:
        """The header, if there is one, then the samples in the order of the archive; of a sample that was written
        again, the last.
        """
        sizes = {info.filename: info.compress_size for info in self._archive.infolist()}
        header = next((name for name in HEADERS if name in sizes), None)
        samples = [name for name in sizes if name.startswith("samples/") and name.endswith(".json")]
        return [Member(name, name == header, sizes[name]) for name in ([header] if header else []) + samples]

    def read(self, name: str, most: int) -> bytes:
        """The first bytes of a member, unpacked. Raises ArchiveError."""
        try:
            with self._archive.open(name) as member:
                return member.read(most)
        except _DAMAGED as error:
            raise ArchiveError(f"cannot be unpacked: {error}") from None


@contextmanager
def opened_archive(source: BinaryIO) -> Iterator[EvalArchive]:
    """Open a log. Raises ArchiveError."""
    with _seekable(source) as file:
        try:
            archive = zipfile.ZipFile(file)
        except _DAMAGED as error:
            raise ArchiveError(f"not a zip archive: {error}") from None
        with archive:
            yield EvalArchive(archive)


@contextmanager
def _seekable(source: BinaryIO) -> Iterator[BinaryIO]:
    """A seekable file; one that is compressed as a whole is unpacked first."""
    if isinstance(source, io.BufferedReader) and isinstance(source.raw, io.FileIO):
        yield source
        return
    with tempfile.TemporaryFile(prefix="braid-import-") as copy:
        shutil.copyfileobj(source, copy)
        yield copy
