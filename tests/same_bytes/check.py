"""`make same-bytes`: stored logs of every released emission version give the bytes that were stored with them.

Each `v<N>/` holds an archive of a live worker's log with all sinks (`archive/`), and `expected.json`: the digests of the archive,
of its schema files, of everything a replay makes, and of the JSON view of every record. Nothing here is ever regenerated: a
changed digest means that old logs would change, and needs a new emission version instead.

    python -m tests.same_bytes.check                        check all versions, compiled and in plain Python
    python -m tests.same_bytes.check --record v2            write expected.json of a version that has none
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from schemas import versions
from schemas.compiled import compiled
from streams.jobs.archive import check as check_archive
from streams.jobs.replay.comparison import SINKS
from streams.log.container import partitions_of, read_partition
from streams.log.json_lines import json_line
from streams.log.manifest import LOG_MANIFEST, read_manifest
from streams.log.wire import Codec
from tests.plain import plain_copy

HERE = Path(__file__).parent
KEY = "public_key"
ADVICE = "old logs would change: give the new field or rule a new emission version (see CONTRIBUTING.md)"

Found = dict[str, Any]


def main(words: list[str]) -> int:
    """Check, or record what a new version gives. Returns the exit code."""
    if words[:1] == ["--record"]:
        return _record(HERE / words[1])
    problems = [f"schemas: {problem}" for problem in versions.check()]
    folders = sorted(path for path in HERE.glob("v*") if path.is_dir())
    if not problems:
        problems = [problem for folder in folders for problem in _stored(folder)]
    if not problems:
        problems = [problem for folder in folders for problem in _replayed(folder)]
    for problem in problems:
        sys.stdout.write(f"same-bytes: {problem}\n")
    if problems:
        sys.stdout.write(f"same-bytes: FAILED: {ADVICE}\n")
    return 1 if problems else 0


def _stored(folder: Path) -> Iterator[str]:
    """Compare what is cheap to look at: the archive itself, the schema files, the JSON views."""
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    for problem in check_archive(folder / "archive").problems:
        yield f"{folder.name}: {problem}"
    for name, found in (("archive", _archive(folder)), ("schemas", _schemas(folder)), ("views", _views(folder))):
        yield from _differences(f"{folder.name}: {name}", expected[name], found)


def _replayed(folder: Path) -> Iterator[str]:
    """Replay the log with compiled modules, then by a copy without any, and verify every record and signature."""
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    modules, changed, _ = compiled()
    if not modules or changed:
        sys.stdout.write("same-bytes: nothing is compiled from these sources: only plain Python is checked\n")
    with TemporaryDirectory() as copy:
        ways = [("plain Python", plain_copy(Path(copy)))]
        if modules and not changed:
            ways.insert(0, ("compiled", Path.cwd()))
        for way, place in ways:
            yield from _replayed_at(folder, expected, way, place)
    key = f"{expected[KEY]['key_id']}={expected[KEY]['public_key_hex']}"
    done = _braid(
        Path.cwd(), "verify", str(folder / "archive"), "--public-key", key, "--unfinished"
    )  # archives of version 1 have no signed manifest
    if done.returncode:
        yield f"{folder.name}: braid verify: {done.stdout.strip().splitlines()[-1]}"


def _replayed_at(folder: Path, expected: Found, way: str, place: Path) -> Iterator[str]:
    began = time.monotonic()
    found, verified = _replay(folder, place)
    if not verified["ok"]:
        yield f"{folder.name}, {way}: replay --verify: {'; '.join(verified['named'][:3])}"
    yield from _differences(f"{folder.name}, {way}: replay", expected["replay"], found)
    done = f"{verified['identical']:,} records identical, {time.monotonic() - began:.1f} s"
    sys.stdout.write(f"same-bytes: {folder.name}, {way}: {done}\n")


def _differences(where: str, expected: Found, found: Found) -> Iterator[str]:
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            yield f"{where}: {name}: expected {expected.get(name)}, found {found.get(name)}"


def _archive(folder: Path) -> Found:
    return {LOG_MANIFEST: sha256((folder / "archive" / LOG_MANIFEST).read_bytes()).hexdigest()}


def _schemas(folder: Path) -> Found:
    """The digests of the committed schemas that records of this emission version are written with."""
    numbers = versions.emitted(int(folder.name.removeprefix("v")))
    names = sorted(f"{name}.v{number}.avsc" for name, number in numbers.items())
    return {name: sha256((versions.FOLDER / name).read_bytes()).hexdigest() for name in names}


def _views(folder: Path) -> Found:
    """By sink, one digest of the JSON views of all its records."""
    stored = read_manifest(folder / "archive")["schemas"]
    codec = Codec(stored={int(number): schema for number, schema in stored.items()})
    found = {}
    for topic in SINKS:
        if not (folder / "archive" / "log" / topic.name).is_dir():
            continue  # a sink that came later
        whole = sha256()
        for partition in partitions_of(folder / "archive" / "log", topic.name):
            for record in read_partition(folder / "archive" / "log", topic.name, partition):
                whole.update(json_line(codec.decode(topic, record.value)))
        found[topic.name] = whole.hexdigest()
    return found


def _replay(folder: Path, place: Path) -> tuple[Found, Found]:
    done = _braid(place, "replay", "--from-dir", str(folder / "archive"), "--dry-run", "--verify", "--json")
    if not done.stdout.startswith("{"):
        raise SystemExit(f"same-bytes: {folder.name}: the replay failed: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    return said["digests"] | {f"{name}, records": count for name, count in said["records"].items()}, said["verified"]


def _braid(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of the packages in a directory."""
    command, env = [sys.executable, "-m", "streams.cli", *words], os.environ | {"PYTHONPATH": str(place)}
    return subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)


def _record(folder: Path) -> int:
    """Write what a version gives today, once."""
    path = folder / "expected.json"
    if path.exists():
        sys.stdout.write(f"{path} is there already, and is never written again\n")
        return 1
    replay, verified = _replay(folder, Path.cwd())
    assert verified["ok"], verified
    expected = {
        KEY: json.loads((folder / "public-key.json").read_text("utf-8")), "archive": _archive(folder),
        "schemas": _schemas(folder), "views": _views(folder), "replay": replay,
    }  # fmt: skip
    path.write_text(json.dumps(expected, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
