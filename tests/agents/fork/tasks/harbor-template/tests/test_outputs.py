import subprocess

import pytest


@pytest.mark.parametrize(("numbers", "total"), [("1\n2\n", "3"), ("", "0"), ("-5\n12\n7\n", "14")])
def test_outputs(numbers, total):
    done = subprocess.run(["python3", "add.py"], input=numbers, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == total
