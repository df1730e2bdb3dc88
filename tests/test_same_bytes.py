"""The guard of old logs: a record or rule that changes without a new emission version is refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plain import plain_copy

FIELD = '''    admission: Admission | None = None
    """The admission that kept it out, where it came that far."""
'''
ADDED = (
    FIELD
    + '''    origin: str | None = None
    """A field more."""
'''
)


class Copy:
    """A copy of the product that is changed and checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plain_copy(folder)

    def edit(self, path: str, before: str, after: str) -> None:
        file = self.folder / path
        text = file.read_text("utf-8")
        assert text.count(before) == 1, path
        file.write_text(text.replace(before, after), "utf-8")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONPATH": str(self.folder)}
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )


@pytest.fixture
def product(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "product")


def new_field(product: Copy) -> None:
    product.edit("schemas/training.py", FIELD, ADDED)


def new_field_and_schema(product: Copy) -> None:
    new_field(product)
    assert product.run("streams.cli", "schemas", "write").returncode == 0


def new_field_in_the_released_schema(product: Copy) -> None:
    new_field(product)
    script = "from schemas import versions; versions.write(amend=True)"
    env = os.environ | {"PYTHONPATH": str(product.folder)}
    subprocess.run([sys.executable, "-c", script], cwd=product.folder, env=env, check=True)


def new_field_under_version_1(product: Copy) -> None:
    new_field_and_schema(product)
    product.edit("schemas/versions.py", "        1,\n    ),\n", '        1,\n    ) | {"RejectedRecord": 2},\n')


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (new_field, "RejectedRecord: the model differs from RejectedRecord.v1.avsc"),
        (new_field_and_schema, "RejectedRecord.v2 belongs to no emission version"),
        (new_field_in_the_released_schema, "v1: schemas: RejectedRecord.v1.avsc"),
        (new_field_under_version_1, "v1: schemas: RejectedRecord.v1.avsc"),
    ],
)
def test_a_field_without_a_new_emission_version_is_refused(
    change: Callable[[Copy], None], said: str, product: Copy
) -> None:
    """Whether its schema was written, amended, or given to the released version."""
    change(product)
    done = product.run("tests.same_bytes.check")
    assert done.returncode == 1, done.stdout
    assert said in done.stdout
    assert "new emission version" in done.stdout


@pytest.mark.long  # in short: `make same-bytes` itself, whose old logs know nothing of the fields of version 2
def test_a_field_of_the_next_emission_version_leaves_old_logs_alone(product: Copy) -> None:
    """The stored log is replayed by a product whose newest rows have a field more: the same bytes."""
    new_field_and_schema(product)
    last = '"ComplianceEvalRecord": 1,\n    },\n'
    product.edit("schemas/versions.py", last, last + '    3: {"RejectedRecord": 2},\n')
    product.edit("schemas/emission.py", "NEWEST_VERSION = 2", "NEWEST_VERSION = 3")
    product.edit("agents/rules/emission_rules.py", '"""By emission version."""', "RULES[3] = RULES[2]")
    product.edit(
        "schemas/training.py", "    origin: str | None = None\n",
        "    origin: str | None = Field(default=None, exclude_if=lambda origin: origin is None)\n",
    )  # fmt: skip
    done = product.run("tests.same_bytes.check")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@pytest.mark.long
def test_a_rule_that_changes_under_version_1_is_refused(product: Copy) -> None:
    """Here what a pass is worth: the digests of rewarded rows are others."""
    product.edit(
        "agents/rewards/rewards.py", "    passed, coverage = score, None\n", "    passed, coverage = score / 2, None\n"
    )
    done = product.run("tests.same_bytes.check")
    assert done.returncode == 1
    assert "training.ppo.v1" in done.stdout
