"""Find the browser of this machine, or return a reason that names what to install."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from agents.fork.visual_verdict import Browser

SCRIPT = Path(__file__).with_name("look_adapter.py")

PROGRAMS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/headless_shell",
)
"""Where packages install the program itself; the command of the same name is often a script that needs more of the
machine.
"""

COMMANDS = ("chromium", "chromium-browser", "headless_shell")

MISSING = "no Chromium on this machine: install the package chromium (`make browser`), or set BRAID_VERIFIER__BROWSER"


NO_DRIVER = "no playwright in this installation: install braidstream[fork]"


def find_browser(configured: Path | None = None) -> Browser | str:
    """The configured Chromium, else the system's; else the reason why there is none. Sandboxes see only files below
    /usr.
    """
    if configured is not None and not configured.is_file():
        return f"BRAID_VERIFIER__BROWSER names {configured}, which is not a file"
    found = [configured] if configured is not None else [Path(name) for name in PROGRAMS if Path(name).is_file()]
    found += [Path(path).resolve() for name in COMMANDS if (path := shutil.which(name)) is not None]
    if not found:
        return MISSING
    if find_spec("playwright") is None:
        return NO_DRIVER
    return Browser(str(found[0]), sys.executable, SCRIPT.read_bytes())
