"""Damaged files: no traceback, no hang, lines that the log takes, and each rejection with its position."""

import os
import random
import shutil
from pathlib import Path

import pytest

from agents.importers.lines import LineReader
from tests.imports.importing import read_traces
from tests.imports.mutations import mutate
from tests.imports.test_counts import SAMPLES, paths_of

N = int(os.environ.get("BRAID_MUTATIONS", "5"))
"""Mutations of each sample; `BRAID_MUTATIONS=1000` is the long proof."""


@pytest.mark.parametrize("sample", SAMPLES)
def test_damage_is_rejected_where_it_is(sample: str, tmp_path: Path) -> None:
    """Whatever the damage: good lines come out, and bad ones are named."""
    for seed in range(N):
        folder = tmp_path / str(seed)
        copy_sample(sample, folder)
        done = mutate(folder, seed)
        paths = [folder] if sample.endswith("/") else sorted(place for place in folder.iterdir())
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
