"""Where the shared conformance data lies: beside the project, not in it.

A test that needs it is skipped where the folder is absent, and fails where it must not be (CI=true).
"""

import os
from pathlib import Path

import pytest

_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "conformance"


def conformance(*parts: str) -> Path:
    """Return the path of a conformance file or folder; skip (or, in CI, fail) the test when it is not there."""
    path = _FOLDER.joinpath(*parts)
    if not path.exists():
        why = f"conformance data is missing: {path}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why, allow_module_level=True)
    return path
