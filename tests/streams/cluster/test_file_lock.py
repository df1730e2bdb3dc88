"""A lock file is held by one at a time; another holder is refused, or waits."""

import threading
from pathlib import Path

import pytest

from streams.cluster.locks.file_lock import LockedError, locked


def test_a_second_holder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with locked(path), pytest.raises(LockedError, match=f"another process holds {path}"):
        locked(path)
    locked(path).close()


def test_a_holder_that_says_so_waits_for_the_first(tmp_path: Path) -> None:
    path, said, waiting = tmp_path / "lock", list[str](), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waiting.set()

    with locked(path):
        second = threading.Thread(target=lambda: locked(path, say).close())
        second.start()
        assert waiting.wait(5)
        assert second.is_alive()
    second.join(5)
    assert not second.is_alive()
    assert said == [f"waiting for another process that holds {path} ..."]
