"""Compile the package in place: modules that pyproject.toml lists, by mypyc, and the modules written in C.

Hatchling runs this for wheels and editable installs; `make setup` runs it as a script, which shows its progress. Without a C
compiler, or with BRAID_COMPILED=no, the package is pure Python. `schemas/compiled.json` records what was compiled from which sources.
"""

import ast
import json
import os
import sysconfig
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stderr, redirect_stdout
from hashlib import sha256
from io import StringIO
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("schemas", "agents", "streams")
IN_C = (
    "schemas/codec/_avro.c", "agents/ranking/_newton.c", "agents/evidence/_canonical.c", "agents/importers/otlp/_wire.c",
)  # fmt: skip
# Products are not contracted into sums: a fused operation rounds once, and the bits would differ.
FLAGS = ("-O2", "-ffp-contract=off")
# Code that mypyc generates compiles in half the time of -O2, and is 2 % slower.
LEVEL = "1"
# One library has the code of all modules; the files beside the sources refer to it. mypyc wants it where the packages lie.
GROUP = "braid"
LIBRARY = f"{GROUP}__mypyc"
RECORD = Path("schemas/compiled.json")
CLIENT_FILE = "clients/python/braidstream/tracer.py"
"""The gateway serves it."""
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
# mypyc type-checks every line that it reads, also of libraries. Those that no compiled module imports are left out: the same C
# comes out, after 9 instead of 64 CPU seconds. A library that is left out by mistake is compiled as `Any`: more slowly,
# the same results.
READ = (
    *PACKAGES, "annotated_types", "cryptography", "dataclasses_avroschema", "fastavro", "orjson", "pydantic", "pydantic_core",
)  # fmt: skip
CONFIG = f"""[mypy]
plugins = pydantic.mypy
ignore_missing_imports = True
follow_imports = skip
[mypy-{",".join(f"{name}.*" for name in READ)}]
follow_imports = silent
"""

# Reports of progress while the C files are compiled.
STEPS = 5

Say = Callable[[str], None]


class CompileModules(BuildHookInterface[BuilderConfig]):
    """Adds the compiled modules to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel for this Python and machine; without compiled modules it is for any."""
        if version == "standard":  # a checkout has the file itself
            build_data["force_include"][CLIENT_FILE] = "streams/services/gateway/tracer.py.txt"
        if os.environ.get("BRAID_COMPILED", "").strip().lower() in {"no", "off", "false", "0"}:
            return
        with chdir(self.root):
            record = compile_package(self.config["modules"], self.app.display_warning)
        build_data["artifacts"] += [str(RECORD), *record["files"]]
        if record["files"]:
            library = f"{LIBRARY}{SUFFIX}"
            build_data["force_include"][library] = library
            build_data["pure_python"] = False
            build_data["infer_tag"] = True


def compile_package(modules: Sequence[str], say: Say) -> dict[str, Any]:
    """Compile what is not compiled already; returns the record of it, which has no files where the compiler failed."""
    paths = [f"{name.replace('.', '/')}.py" for name in modules]
    sources = {path: sha256(Path(path).read_bytes()).hexdigest() for path in sorted({*IN_C, *imported(paths)})}
    wanted = {"modules": [*modules], "in_c": [*IN_C], "suffix": SUFFIX, "sources": sources}
    record: dict[str, Any] = json.loads(RECORD.read_bytes()) if RECORD.exists() else {}
    if wanted.items() <= record.items() and record["files"] and all(Path(file).exists() for file in record["files"]):
        return record
    for old in [*Path().glob(f"*{SUFFIX}"), *(file for each in PACKAGES for file in Path(each).rglob(f"*{SUFFIX}"))]:
        old.unlink()  # a running process keeps the file that it has loaded
    try:
        record = wanted | {"files": _compile(paths, say), "failed": ""}
    except Exception as error:  # noqa: BLE001 - whatever it is, the package works without
        say(f"not compiled: {type(error).__name__}: {error}")
        record = wanted | {"files": [], "failed": str(error)}
    RECORD.write_text(json.dumps(record, indent=1), "utf-8")
    return record


def imported(paths: Iterable[str]) -> set[str]:
    """Return the modules and those of ours that they import: mypyc compiles their constants in, and relies on their types."""
    found = {*paths}
    for path in paths:
        for node in ast.walk(ast.parse(Path(path).read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                place = node.module.replace(".", "/")
                found |= {f"{place}.py", *(f"{place}/{alias.name}.py" for alias in node.names)}
    return {path for path in found if Path(path).is_file()}


def _compile(paths: Sequence[str], say: Say) -> list[str]:
    """Run mypyc and the C compiler; returns the files made. Raises for a type error or a failed compiler."""
    from mypyc.build import mypycify
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    class Build(build_ext):
        """Compiles the C files of a module side by side, and reports every fifth of them all."""

        def build_extensions(self) -> None:
            compile_all = self.compiler.compile
            total = sum(len(each.sources) for each in self.extensions)
            compiled = count(1)

            def compile_each(files: list[str], *given: Any, **options: Any) -> list[str]:
                def compile_one(file: str) -> list[str]:
                    made = list(compile_all([file], *given, **options))
                    number = next(compiled)
                    if number * STEPS // total > (number - 1) * STEPS // total:
                        say(f"  {number} of {total} C files")
                    return made

                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    return [made for each in pool.map(compile_one, files) for made in each]

            self.compiler.compile = compile_each
            super().build_extensions()

    with TemporaryDirectory() as directory:
        config = Path(directory, "mypy.ini")
        config.write_text(CONFIG, "utf-8")
        say(f"compiling {len(IN_C)} modules in C and {len(paths)} in Python: mypyc reads their types ...")
        said = StringIO()  # mypyc warns of what is slow, and prints its errors before it exits
        try:
            with redirect_stdout(said), redirect_stderr(said):
                extensions = mypycify(
                    [f"--config-file={config}", f"--cache-dir={directory}/cache", *paths],
                    multi_file=True, target_dir=directory, group_name=GROUP, opt_level=LEVEL, debug_level="0",
                )  # fmt: skip
        except SystemExit:
            raise ValueError(said.getvalue()) from None
        for each in (
            extensions
        ):  # hidden: calls within the library need no look-up; a list of its own: mypyc gives all the same
            each.extra_compile_args = [*each.extra_compile_args, "-fvisibility=hidden"]
        for path in IN_C:
            extensions.append(Extension(path[:-2].replace("/", "."), [path], extra_compile_args=[*FLAGS]))
        build = Build(Distribution({"ext_modules": extensions}))
        build.inplace, build.build_lib, build.build_temp = True, f"{directory}/lib", f"{directory}/objects"
        build.parallel = os.cpu_count()
        build.ensure_finalized()
        build.run()
        return sorted(os.path.relpath(build.get_ext_fullpath(extension.name)) for extension in extensions)


def main() -> None:
    """Compile in place, and report the time that it took. Without a C compiler the package works all the same."""
    began = time.monotonic()
    listed = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    hook = listed["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    record = compile_package(hook["modules"], lambda text: print(text, flush=True))
    what = (
        f"compiled: {len(record['files'])} files" if record["files"] else "Python and fastavro do the same, more slowly"
    )
    processor = sum(os.times()[:4])
    print(f"{what}; {time.monotonic() - began:.0f} s (processor: {processor:.0f} s)")


if __name__ == "__main__":
    main()
