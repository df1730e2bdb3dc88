"""The same files give the same bytes: in another process, with another hash seed and another locale."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.imports.importing import read_traces
from tests.imports.test_counts import SAMPLES, paths_of

PROGRAM = """
import sys
from hashlib import sha256
from pathlib import Path
from tests.imports.importing import read_traces
from tests.imports.test_counts import SAMPLES, paths_of
for sample in SAMPLES:
    print(sha256(read_traces(sample.partition("/")[0], *paths_of(sample)).text).hexdigest(), sample)
"""


@pytest.mark.parametrize("seed", ["1"])
def test_lines_are_the_same_in_another_process(seed: str) -> None:
    """No order of sets, no locale, no clock."""
    here = [
        f"{sha256(read_traces(sample.partition('/')[0], *paths_of(sample)).text).hexdigest()} {sample}"
        for sample in SAMPLES
    ]
    env = os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=root, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == here
