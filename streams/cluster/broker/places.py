"""The default places of the local broker's files.

State (data, logs, process ids) is valuable to its user; the cache (jars) can be deleted at any time while no broker
runs, and is resolved again.
"""

import os
from pathlib import Path

from platformdirs import user_cache_path, user_state_path

APPLICATION = "braidstream"


def state_dir() -> Path:
    """`BRAID_STATE_DIR`, or the user's state directory of this platform."""
    return _given("BRAID_STATE_DIR") or user_state_path(APPLICATION)


def cache_dir() -> Path:
    """`BRAID_CACHE_DIR`, or the user's cache directory of this platform."""
    return _given("BRAID_CACHE_DIR") or user_cache_path(APPLICATION)


def _given(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None
