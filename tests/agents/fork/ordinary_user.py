"""Run a command as an ordinary user: `python -m tests.agents.fork.ordinary_user [--root] COMMAND...`, started by root.

Folders that only root can enter are covered, in a mount namespace of this process's own, by ones that every user can
enter; of the old ones only this repository and the Python that runs it are left, at their places. With `--root` the
command stays root.
"""

import os
import sys
import tempfile
from pathlib import Path

from agents.fork.kernel_adapter import MS_BIND, MS_PRIVATE, MS_REC, NEW_NS, become, call, mount

USER = 65534
MS_MOVE = 8192
REPOSITORY = Path(__file__).parents[3]


def main() -> None:
    """Open the folders, become the user, become the command."""
    call("unshare", NEW_NS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    needed = {Path(place).resolve() for place in (sys.prefix, sys.base_prefix, REPOSITORY)}
    outer = [place for place in sorted(needed) if needed.isdisjoint(place.parents)]
    for closed in sorted({place for each in outer if (place := closed_above(each))}):
        uncover(closed, [place for place in outer if place.is_relative_to(closed)])
    stays = sys.argv[1] == "--root"
    home = tempfile.mkdtemp()
    Path(home).chmod(0o755)
    os.chdir(REPOSITORY)
    if not stays:
        os.chown(home, USER, USER)
        become(USER)
    os.environ |= {"HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"}
    command = sys.argv[1 + stays :]
    os.execvp(command[0], command)


def closed_above(place: Path) -> Path | None:
    """The first folder on the way to a place that others cannot enter."""
    return next((each for each in reversed(place.parents) if not each.stat().st_mode & 0o001), None)


def uncover(closed: Path, places: list[Path]) -> None:
    """Cover a folder by an empty one that holds only some places of the old one."""
    with tempfile.TemporaryDirectory() as stash:
        for number, place in enumerate(places):
            Path(stash, str(number)).mkdir()
            mount(str(place), f"{stash}/{number}", None, MS_BIND | MS_REC)
        mount("tmpfs", str(closed), "tmpfs", 0, "mode=755")
        for number, place in enumerate(places):
            place.mkdir(parents=True)
            mount(f"{stash}/{number}", str(place), None, MS_MOVE)


if __name__ == "__main__":
    main()
