"""Damaged files: no traceback, no hang, lines that the log takes, and each rejection with its position."""

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from agents.importers.lines import LineReader
from tests.imports.importing import read_traces
from tests.imports.mutations import mutate
from tests.imports.test_counts import SAMPLES, paths_of
from tests.processes import run_braid

FEW = 5
"""Mutations of each sample in every run of the suite; 1,000 are the long proof."""

OWN = ("atif", "messages", "sts")
"""Datasets that `braid export` wrote: importers read more of them than of other files."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples with verdicts, errors, media and sub-agents, exported in the three formats."""
    place = tmp_path_factory.mktemp("exported")
    names = ("tau2/results.json", "harbor/job-demo/", "claude-code/*.jsonl")
    lines = b"".join(read_traces(name.partition("/")[0], *paths_of(name)).text for name in names)
    (place / "lines.ndjson").write_bytes(lines)
    formats = [word for name in OWN for word in ("--format", name)]
    done = run_braid("run", place / "lines.ndjson", "--out", place / "out", *formats)
    assert done.returncode == 0, done.stderr
    for name in OWN:
        for left in ("provenance", "manifest.json", "checkpoint.json", "README.md", ".export.lock"):
            path = place / "out" / name / left
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return place / "out"


@pytest.mark.parametrize("sample", SAMPLES)
def test_damage_is_rejected_where_it_is(sample: str, tmp_path: Path) -> None:
    """For any damage: good lines come out, and bad ones are named."""
    damage(sample, tmp_path, range(FEW))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_thousand_damages_are_rejected_where_they_are(sample: str, tmp_path: Path) -> None:
    """The same, a thousand times for each format."""
    damage(sample, tmp_path, range(FEW, 1000))


@pytest.mark.parametrize("name", OWN)
def test_damage_of_our_own_datasets_is_rejected_where_it_is(name: str, exported: Path, tmp_path: Path) -> None:
    """Files that `braid export` wrote."""
    damage(name, tmp_path, range(2 * FEW), exported / name)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OWN)
def test_a_thousand_damages_of_our_own_datasets(name: str, exported: Path, tmp_path: Path) -> None:
    """The same, a thousand times."""
    damage(name, tmp_path, range(2 * FEW, 1000), exported / name)


def damage(sample: str, place: Path, seeds: Iterable[int], source: Path | None = None) -> None:
    """Mutate a sample once for each seed, and read it."""
    for seed in seeds:
        folder = place / str(seed)
        if source is None:
            copy_sample(sample, folder)
        else:
            shutil.copytree(source, folder)
        done = mutate(folder, seed)
        paths = [folder] if sample.endswith("/") or source else sorted(folder.iterdir())
        try:
            read = read_traces(sample.partition("/")[0], *paths)
            reader = LineReader()
            for line in read.lines:
                reader.read_object(line)
        except Exception as error:  # the seed is what one needs
            raise AssertionError(f"{sample}: {done}") from error
        assert all(said.count(":") for said in read.rejected.first), (done, read.rejected.first)
        shutil.rmtree(folder)


def copy_sample(sample: str, folder: Path) -> None:
    """Copy a sample's files, writable, to a folder."""
    folder.mkdir(parents=True)
    for path in paths_of(sample):
        if path.is_dir():
            shutil.copytree(path, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(path, folder / path.name)
    for place in folder.rglob("*"):
        place.chmod(0o755 if place.is_dir() else 0o644)


def test_the_neighbours_of_a_bad_element_are_intact(tmp_path: Path) -> None:
    """One run of an array is of the wrong type: every other one comes out as before."""
    import orjson

    runs = orjson.loads(paths_of("tau-bench/*.json")[0].read_bytes())
    whole, broken = tmp_path / "a" / "runs.json", tmp_path / "b" / "runs.json"
    for place in (whole, broken):
        place.parent.mkdir()
    victim = random.Random(7).randrange(len(runs))
    whole.write_bytes(orjson.dumps(runs))
    broken.write_bytes(orjson.dumps([*runs[:victim], runs[victim] | {"traj": 5}, *runs[victim + 1 :]]))
    before, after = read_traces("tau-bench", whole), read_traces("tau-bench", broken)
    assert after.rejected.count == 1
    assert after.rejected.first == [f"runs.json: [{victim}]: traj: expected an array, found a number"]
    assert {source["position"] for source in before.events("import_source")} - {
        source["position"] for source in after.events("import_source")
    } == {f"[{victim}]"}
