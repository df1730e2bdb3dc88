"""Looking into the embedded log: the same page as from Kafka, and a gist for every record."""

from pathlib import Path

import orjson
import pytest

from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader
from streams.log.reader import LookError
from streams.log.topics import DEAD_LETTERS, TOPICS
from streams.views.gist import gist
from tests.sample.sample_lines import write_sample
from tests.streams.views.conftest import SECRET, Braid, open_lines


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of `braid run` on the sample and on a rollout with secrets in it."""
    folder = tmp_path_factory.mktemp("out")
    sample = folder / "sample.ndjson"
    write_sample(sample)
    with sample.open("ab") as more:
        more.writelines(orjson.dumps(line) + b"\n" for line in open_lines())
    run_files([sample], folder / "out", Settings(), None)
    return folder / "out"


def test_show_reads_what_braid_run_left(out: Path, braid: Braid) -> None:
    """Ranking, bars, rows, what was left out, and evidence, without any broker."""
    shown = braid(None, "show", "lru-cache", "--from-dir", str(out))
    assert shown.code == 0
    for text in (
        "lru-cache  closed",
        "├",
        "Not powered: 4 branches",
        "0 over 2 (judge, margin 0.251",
        "below_min_probability",
    ):
        assert text in shown.out
    assert "the closing record lists 14 rows and 4 branch records: all of them are in the log" in shown.out


def test_show_as_json_has_everything(out: Path, braid: Braid) -> None:
    """One object with the ranking, votes both ways, rows and reasons."""
    found = braid(None, "show", "csv-parser", "--from-dir", str(out), "--json").json
    assert found["status"] == "closed"
    assert {"ranking", "votes", "rows", "left_out", "evidence", "dead_letters", "branches", "verdicts"} <= found.keys()
    assert found["evidence"]["listed_branches"] == len(found["branches"])  # type: ignore[arg-type]
    assert found["evidence"]["listed_rows"] == sum(map(len, found["rows"].values())) + len(found["left_out"])  # type: ignore[index,attr-defined,arg-type]


def test_show_shows_no_secret(out: Path, braid: Braid) -> None:
    """Neither people nor programs get what an agent or a verifier let slip."""
    for words in ((), ("--json",)):
        shown = braid(None, "show", "half-done", "--from-dir", str(out), *words)
        assert SECRET[:20] not in shown.out
        assert "bob@example.com" not in shown.out
        assert "\x1b" not in shown.out
        assert "[REDACTED:anthropic_key]" in shown.out


def test_an_unknown_rollout_is_an_error_with_a_suggestion(out: Path, braid: Braid) -> None:
    """Exit code 1, no traceback, and what was meant."""
    shown = braid(None, "show", "lru-cash", "--from-dir", str(out))
    assert (shown.code, shown.out) == (1, "")
    assert "did you mean lru-cache?" in shown.err


def test_a_directory_without_a_log_is_an_error(tmp_path: Path) -> None:
    """A wrong path must not look like an empty log."""
    with pytest.raises(LookError, match="holds no embedded log"):
        FileReader(tmp_path)


async def test_every_record_has_a_gist_of_one_line(out: Path) -> None:
    """Any record of a topic can be scrolled through."""
    log = FileReader(out)
    kinds = set()
    async for placed in log.records([topic for topic in TOPICS if topic is not DEAD_LETTERS]):
        record = await log.decode(placed)
        said = gist(record)
        assert said.isprintable()
        assert 0 < len(said) <= 160
        assert SECRET[:20] not in said
        kinds.add(type(record).__name__)
    assert len(kinds) >= 14


async def test_one_rollout_is_read_from_its_partition_by_its_key(out: Path) -> None:
    """Records of others are passed over without being decoded."""
    keys = {placed.record.key async for placed in FileReader(out).records(TOPICS, rollout_id="lru-cache")}
    assert keys == {b"lru-cache"}
