"""The choice of a log: files in a directory, or the configured cluster."""

from pathlib import Path

from streams.cluster.config import Settings
from streams.log.progress import Say, quiet
from streams.log.reader import LogReader


def reader_of(
    settings: Settings, directory: Path | None, *, unfinished: bool = False, tolerant: bool = False, say: Say = quiet
) -> LogReader:
    """A reader of the log in a directory; of the cluster's without one. See `FileReader` for the flags."""
    if directory is None:
        from streams.log.kafka_reader import KafkaReader  # only one of them is imported, because a look must be quick

        return KafkaReader(settings, say)
    from streams.log.file_reader import FileReader

    return FileReader(directory, unfinished=unfinished, tolerant=tolerant)
