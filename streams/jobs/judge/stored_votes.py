"""Stored votes, for statistics of judges: in the log, or in the output of `braid run` or `braid judge again`."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agents.judge.agreement import TimedVote
from schemas.errors import DecodeError
from schemas.jsontext import parse_object
from schemas.judging import JudgeVote
from schemas.rankings import Ranking
from streams.cluster.config import Settings
from streams.jobs.judge.asker import VOTES_FILE, votes_in
from streams.log.file_reader import FileReader
from streams.log.files import find_log
from streams.log.json_lines import SINK_FILES
from streams.log.kafka_reader import KafkaReader
from streams.log.progress import Say
from streams.log.reader import LogReader
from streams.log.topics import JUDGE_VOTES


async def votes_of_directory(directory: Path, *, unfinished: bool = False) -> list[TimedVote]:
    """The votes in the log of a directory, else in its votes.jsonl. Raises LookError when it has neither."""
    path = directory / VOTES_FILE
    if find_log(directory) is None and path.is_file():
        # The lines have no times: a vote is as old as the closing of its rollout, else as the file.
        times, written = _closings(directory), int(path.stat().st_mtime * 1000)
        return [TimedVote(vote, times.get(vote.rollout_id, written)) for vote in votes_in(path)]
    return await _votes_of(FileReader(directory, unfinished=unfinished))


async def votes_of_prefixes(settings: Settings, prefixes: Sequence[str], say: Say) -> list[TimedVote]:
    """The votes on Kafka, in the topics with these prefixes."""
    found = []
    for prefix in prefixes:
        async with KafkaReader(settings.model_copy(update={"prefix": prefix}), say) as log:
            log.require(JUDGE_VOTES)
            found += await _votes_of(log)
    return found


async def _votes_of(log: LogReader) -> list[TimedVote]:
    found = []
    async for placed in log.records([JUDGE_VOTES]):
        with suppress(DecodeError):  # `braid dead-letters list` reports it
            vote = await log.decode(placed)
            if isinstance(vote, JudgeVote):
                found.append(TimedVote(vote, placed.record.at))
    return found


def _closings(directory: Path) -> dict[str, int]:
    """When rollouts closed, by the rankings in a directory; other lines are skipped."""
    found: dict[str, int] = {}
    with suppress(OSError), (directory / SINK_FILES[Ranking]).open("rb") as lines:
        for text in lines:
            with suppress(ValueError, KeyError):
                ranking = parse_object(text)
                found[str(ranking["rollout_id"])] = int(ranking["closed_at_ms"])
    return found
