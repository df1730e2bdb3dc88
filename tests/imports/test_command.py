"""`braid import` as people use it."""

import gzip
from pathlib import Path

import orjson
import pytest

from agents.importers.formats.registry import FORMATS
from agents.importers.traces.rollout_book import Grouping
from streams.jobs.imports.trace_import import ImportTracesError
from tests.imports.importing import read_traces
from tests.imports.test_counts import paths_of
from tests.processes import run_braid

LINE = {"id": "a", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Three chats, of which one is none."""
    place = tmp_path / "chats.jsonl"
    place.write_bytes(orjson.dumps(LINE) + b"\n{oops\n" + orjson.dumps(LINE | {"id": "b"}) + b"\n")
    return place


def test_lines_go_to_standard_output_and_counts_to_standard_error(chats: Path, tmp_path: Path) -> None:
    """Lines can be piped; what is bad is named and kept, and the exit code says so."""
    done = run_braid("import", "messages", chats, cwd=tmp_path)
    assert done.returncode == 1
    assert [orjson.loads(line)["type"] for line in done.stdout.splitlines()].count("rollout") == 2
    assert "rollouts 2, branches 2" in done.stderr
    assert "chats.jsonl: line 2: not JSON" in done.stderr
    (kept,) = [orjson.loads(line) for line in (tmp_path / "rejected-input.jsonl").read_bytes().splitlines()]
    assert (kept["file"], kept["position"], kept["text"]) == ("chats.jsonl", "line 2", "{oops")


def test_keep_going_exits_with_0(chats: Path, tmp_path: Path) -> None:
    """For pipelines that know."""
    assert run_braid("import", "messages", chats, "--keep-going", cwd=tmp_path).returncode == 0


def test_check_writes_nothing(chats: Path, tmp_path: Path) -> None:
    """Counts only: no lines, no sidecar."""
    done = run_braid("import", "messages", chats, "--check", "--json", cwd=tmp_path)
    assert orjson.loads(done.stdout)["branches"] == 2
    assert sorted(place.name for place in tmp_path.iterdir() if place.suffix == ".jsonl") == ["chats.jsonl"]


def test_formats_lists_every_format() -> None:
    """One row for each, with what it cannot know."""
    done = run_braid("import", "formats")
    assert all(f"{name} " in done.stdout for name in FORMATS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing", "x.json"), "No such file"),
        (("messages",), "name the files"),
        (("messages", "CHATS", "--to", "run"), "--out DIR"),
    ],
)
def test_a_wrong_command_says_what_to_do(words: tuple[str, ...], said: str, chats: Path, tmp_path: Path) -> None:
    """An error names the mistake."""
    done = run_braid("import", *(str(chats) if word == "CHATS" else word for word in words), cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr


def test_an_unknown_format_lists_the_known_ones(chats: Path, tmp_path: Path) -> None:
    """And there is no traceback."""
    done = run_braid("import", "mesages", chats, cwd=tmp_path)
    assert done.returncode == 1
    assert "no format mesages; there are: auto, messages" in done.stderr


NONE_OF_THEM = {
    "empty.json": b"", "null.json": b"null", "number.json": b"42", "config.json": b'{"name": "x", "version": "1.0.0"}',
    "geo.json": b'{"type": "FeatureCollection", "features": []}', "lines.jsonl": b'{"a": 1}\n{"a": 2}\n',
    "table.csv": b"name,value\na,1\n", "text.txt": b"hello\n", "picture.json": b"\x89PNG\r\n\x1a\n",
    "package.json": b'{"dependencies": {"role": "1"}, "scripts": {}}', "record.pb": b"\n\x05\n\x03abc",
    "mails.json": b'{"messages": [{"from": "a@b.example", "subject": "x", "value": "y"}]}',
    "channel.json": b'{"messages": [{"id": "1", "role": "moderator", "content": "hi"}]}',
}  # fmt: skip


@pytest.mark.parametrize("name", NONE_OF_THEM)
def test_auto_refuses_a_file_of_no_format(name: str, tmp_path: Path) -> None:
    """Ordinary files are no traces."""
    (tmp_path / name).write_bytes(NONE_OF_THEM[name])
    with pytest.raises(ImportTracesError, match="of no known format") as refused:
        read_traces("auto", tmp_path / name)
    assert all(each in str(refused.value) for each in FORMATS)  # the candidates


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    """A .gz gives the lines of the file in it, but for its name."""
    (plain,) = paths_of("tau-bench/*.json")
    packed = tmp_path / f"{plain.name}.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert (
        read_traces("tau-bench", packed).text.replace(packed.name.encode(), plain.name.encode())
        == read_traces("tau-bench", plain).text
    )


def test_sessions_with_the_same_first_message_are_branches(tmp_path: Path) -> None:
    """`--group-by task`: two chats that begin alike are one rollout."""
    place = tmp_path / "chats.jsonl"
    other = LINE | {
        "id": "c",
        "messages": [{"role": "user", "content": "Bye"}, {"role": "assistant", "content": "Bye."}],
    }
    place.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in (LINE, LINE | {"id": "b"}, other)))
    read = read_traces("messages", place, grouping=Grouping(group_by="task"))
    assert [line["task"] for line in read.of("rollout")] == ["Hi", "Bye"]
    assert [line["branch_index"] for line in read.of("end")] == [0, 1, 0]
    assert len({line["rollout_id"] for line in read.of("end")}) == 2


def test_a_task_of_two_runs_is_two_rollouts_unless_joined(tmp_path: Path) -> None:
    """`--join-runs` makes them branches of one."""
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_bytes(orjson.dumps(LINE) + b"\n")
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    assert read_traces("messages", *paths).found.rollouts == 2
    joined = read_traces("messages", *paths, grouping=Grouping(join_runs=True))
    assert [(line["branch_index"]) for line in joined.of("end")] == [0, 1]
    assert joined.found.rollouts == 1
