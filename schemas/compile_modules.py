"""Compiles the modules in C when the package is built. Without a C compiler it is built all the same, and is slower.

Only the build backend runs this; nothing imports it.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path
from typing import Any

# Only there while the package is built.
from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # type: ignore[import-not-found]

SOURCES = ("schemas/*.c", "agents/*/*.c")
# Products are not to be contracted into sums: a fused operation rounds once, and the bits would differ.
FLAGS = ("-O2", "-ffp-contract=off", "-fPIC", "-shared")


class CompileModules(BuildHookInterface):  # type: ignore[misc]
    """Puts each compiled module beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - as hatchling calls it
        """Compile, and say that the wheel is for this Python and machine; or say why not."""
        for source in sorted(source for pattern in SOURCES for source in Path(self.root).glob(pattern)):
            made = source.with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))
            made.unlink(missing_ok=True)  # never one of another source
            fresh = made.with_name(f"{made.name}.new")
            command = [
                *_compiler(),
                *FLAGS,
                f'-DSOURCE="{sha256(source.read_bytes()).hexdigest()}"',
                f"-I{sysconfig.get_path('include')}",
                str(source),
                "-o",
                str(fresh),
                "-lm",
            ]
            try:
                subprocess.run(command, capture_output=True, text=True, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                why = getattr(error, "stderr", "") or error
                self.app.display_warning(
                    f"Python will do what {source.name} would do faster, because this failed: {shlex.join(command)}\n{why}"
                )
                continue
            fresh.replace(made)
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"].append(str(made.relative_to(self.root)))


def _compiler() -> list[str]:
    """The command that compiles C here; the linker of macOS has to be told that Python comes later."""
    named = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or "clang"]
    return [*named, "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else named
