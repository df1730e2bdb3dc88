"""A run as an earlier version left it: its closing evidence lists rows and no branch records, and is signed as it is."""

from pathlib import Path

from agents.evidence.build import sign, unlisting
from agents.evidence.signing import SigningKey
from schemas.evidence import AepRecord
from streams.log.container import partitions_of, read_partition
from streams.log.file_writer import LogWriter
from streams.log.json_lines import SINK_FILES, json_line
from streams.log.topics import BRANCHES, EVIDENCE
from streams.log.wire import Codec
from tests.sealed import sealed


def made_older(directory: Path, key: SigningKey | None) -> Path:
    """Replace the closing evidence in the lines and the log of a run."""
    codec, lines = Codec(), []
    for partition in partitions_of(directory / "log", EVIDENCE.name):
        stored = list(read_partition(directory / "log", EVIDENCE.name, partition))
        with LogWriter(directory / "log") as log:
            for each in stored:
                record = codec.decode(EVIDENCE, each.value)
                assert isinstance(record, AepRecord)
                if record.closing is not None:
                    before = unlisting(record, BRANCHES.name)
                    record = before if key is None else sign(before, key)
                log.append(EVIDENCE.name, partition, each.key, codec.encode(record), each.at, each.headers)
                lines.append(json_line(record))
    if (directory / SINK_FILES[AepRecord]).is_file():
        (directory / SINK_FILES[AepRecord]).write_bytes(b"".join(lines))
    return sealed(directory, key)
