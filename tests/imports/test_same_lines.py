"""The same files give the same bytes: in another process, with another hash seed and another locale, and as ever."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.imports.importing import read_traces
from tests.imports.test_counts import SAMPLES, paths_of

KNOWN = Path(__file__).with_name("sample_lines.sha256")
"""Digests of the lines of each sample. Lines that shall change are told again: python -m tests.imports.test_same_lines > KNOWN."""


def digests() -> list[str]:
    """A line for each sample."""
    return [
        f"{sha256(read_traces(sample.partition('/')[0], *paths_of(sample)).text).hexdigest()} {sample}"
        for sample in SAMPLES
    ]


def test_lines_of_samples_are_the_known_ones() -> None:
    """A reader that became faster reads the same."""
    assert digests() == KNOWN.read_text().splitlines()


@pytest.mark.parametrize("seed", ["1"])
def test_lines_are_the_same_in_another_process(seed: str) -> None:
    """No order of sets, no locale, no clock."""
    env = os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", __name__], cwd=root, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == digests()


if __name__ == "__main__":
    print("\n".join(digests()))
