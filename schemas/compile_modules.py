"""Compiles, when the package is built, what is written in C and the core that is written in Python.

Without a C compiler the package is built all the same, and is slower; so it is with BRAID_COMPILED=no. Only the build backend
runs this; nothing imports it.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

# Only there where the package is built.
from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = ("schemas/*.c", "agents/*/*.c")
# Products are not to be contracted into sums: a fused operation rounds once, and the bits would differ.
FLAGS = ("-O2", "-ffp-contract=off", "-fPIC")
# As Python itself is compiled, but with less optimization: it takes half the time, and the code 2% more. Warnings about C that
# was generated are for nobody.
CORE_FLAGS = ("-O1", "-fwrapv", "-DNDEBUG", "-fvisibility=hidden", "-w")
CORE_PLACE = Path("schemas/_core")
GROUP = "braid_core"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))


class CompileModules(BuildHookInterface[BuilderConfig]):
    """Puts each module in C beside its source, and the core into a directory of its own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - as hatchling calls it
        """Compile, and say that the wheel is for this Python and machine; or say why not."""
        if os.environ.get("BRAID_COMPILED", "").strip().lower() in {"no", "off", "false", "0"}:
            return
        with chdir(self.root):
            made = [*self._modules_in_c(), *self._core(self.config["core"])]
        if made:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"] += map(str, made)

    def _modules_in_c(self) -> Iterator[Path]:
        for source in sorted(source for pattern in SOURCES for source in Path().glob(pattern)):
            made = source.with_suffix(SUFFIX)
            made.unlink(missing_ok=True)  # never one of another source
            try:
                _compile("-shared", f'-DSOURCE="{_digest(source)}"', str(source), "-lm", made=made)
            except (OSError, subprocess.CalledProcessError) as error:
                self._warn(source.name, error)
            else:
                yield made

    def _core(self, modules: Sequence[str]) -> list[Path]:
        """The files of the compiled core: all of them or none."""
        listed = CORE_PLACE / f"made{SUFFIX}.json"
        files = [listed, *(_place(name) for name in (f"{GROUP}__mypyc", *modules))]
        wanted = {"by": _digest(Path("schemas/compile_modules.py")), "modules": [*modules]}
        if all(file.exists() for file in files) and _is_of(listed, wanted):
            return files
        for old in CORE_PLACE.glob(f"*{SUFFIX}*"):
            old.unlink()
        try:
            sources = _compile_core(modules)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it was, Python does the same
            self._warn("the compiled core", error)
            CORE_PLACE.mkdir(exist_ok=True)
            (CORE_PLACE / f"failed{SUFFIX}.txt").write_text(f"{getattr(error, 'stderr', '') or error}\n", "utf-8")
            return []
        listed.write_text(json.dumps(wanted | {"sources": sources}, indent=1), "utf-8")
        return files

    def _warn(self, what: str, error: BaseException) -> None:
        failed = shlex.join(error.cmd) if isinstance(error, subprocess.CalledProcessError) else type(error).__name__
        why = getattr(error, "stderr", "") or error
        self.app.display_warning(f"Python will do what {what} would do faster, because this failed: {failed}\n{why}")


def _is_of(listed: Path, wanted: dict[str, Any]) -> bool:
    """Whether what lies there was made of what the sources are now, so that it need not be made again."""
    made = json.loads(listed.read_bytes())
    sources = made.pop("sources")
    return made == wanted and all(
        Path(source).exists() and _digest(Path(source)) == digest for source, digest in sources.items()
    )


class _Generated(NamedTuple):
    """The C of the core."""

    files: list[Path]
    shims: dict[str, Path]
    """By module: the few lines that Python loads, which refer to the library."""
    includes: list[str]
    sources: dict[str, str]
    """Every source of ours that the types come from, with its digest: of others, the C might be another."""


def _compile_core(modules: Sequence[str]) -> dict[str, str]:
    """Compile Python modules into one library, with a shim for each; what they were made of."""
    if shutil.which(_compiler()[0]) is None:
        raise FileNotFoundError(_compiler()[0])
    CORE_PLACE.mkdir(exist_ok=True)
    with TemporaryDirectory() as directory, ThreadPoolExecutor(os.cpu_count()) as pool:
        generated = _generate(modules, Path(directory))
        flags = [*CORE_FLAGS, *(f"-I{include}" for include in generated.includes)]

        def compile_one(source: Path) -> Path:
            made = Path(directory, f"{source.name}.o")
            _compile("-c", *flags, str(source), made=made)
            return made

        def shim(module: str) -> None:
            _compile("-shared", *flags, str(generated.shims[module]), made=_place(module))

        # The longest first: the last one to be ready decides.
        ordered = sorted(generated.files, key=lambda file: file.stat().st_size, reverse=True)
        objects = list(pool.map(compile_one, ordered))
        _compile("-shared", *map(str, objects), "-lm", made=_place(f"{GROUP}__mypyc"))
        list(pool.map(shim, modules))
    return generated.sources


def _generate(modules: Sequence[str], directory: Path) -> _Generated:
    """Have mypyc write the C. Raises when a type is wrong, or something is used that it does not compile."""
    import mypyc
    from mypy.build import BuildSource
    from mypy.options import Options
    from mypyc.codegen import emitmodule
    from mypyc.common import IS_FREE_THREADED, RUNTIME_C_FILES, shared_lib_name
    from mypyc.errors import Errors
    from mypyc.namegen import exported_name
    from mypyc.options import CompilerOptions

    options = Options()
    options.python_version = sys.version_info[:2]
    options.python_executable = sys.executable
    options.cache_dir = os.devnull
    options.incremental = False
    # What the types come from is there (pyproject.toml); the rest may be of any type.
    options.ignore_missing_imports = True
    options.follow_imports = "silent"
    options.config_file, options.plugins = "pyproject.toml", ["pydantic.mypy"]
    # What mypyc needs of mypy.
    options.export_types = options.preserve_asts = options.strict_bytes = True
    options.per_module_options = {name: {"mypyc": True} for name in modules}

    # A file of C for each module: they are compiled side by side.
    compiling = CompilerOptions(multi_file=True, target_dir=str(directory), group_name=GROUP)
    sources = [BuildSource(f"{name.replace('.', '/')}.py", name) for name in sorted(modules)]
    groups: emitmodule.Groups = [(sources, GROUP)]
    checked = emitmodule.parse_and_typecheck(sources, options, compiling, groups)
    errors = Errors(options)
    compiled, written, _ = emitmodule.compile_modules_to_c(checked, compiling, errors, groups)
    if errors.num_errors:
        raise ValueError("\n".join(errors.new_messages()))
    (contents,) = written
    for name, text in contents:
        (directory / name).write_text(text, "utf-8")

    library = Path(mypyc.__file__).parent / "lib-rt"
    needed = emitmodule.collect_source_dependencies(compiled)
    template = library / ("module_shim_no_gil_multiphase.tmpl" if IS_FREE_THREADED else "module_shim.tmpl")
    shims = {name: directory / f"{name}.c" for name in modules}
    for name, shim in shims.items():
        names = {
            "modname": name.rpartition(".")[2],
            "libname": shared_lib_name(GROUP),
            "full_modname": exported_name(name),
        }
        shim.write_text(template.read_text("utf-8").format(**names), "utf-8")
    return _Generated(
        [
            *(directory / name for name, _ in contents if name.endswith(".c")),
            *(library / name for name in RUNTIME_C_FILES),
            *(library / each.path for each in needed),
        ],
        shims,
        [str(directory), str(library), *(str(library / name) for each in needed for name in each.include_dirs)],
        {path: _digest(Path(path)) for path in sorted(_ours(state.path for state in checked.graph.values()))},
    )


def _ours(paths: Iterator[str | None]) -> set[str]:
    here = Path().absolute()
    found = (Path(path).absolute() for path in paths if path)
    packages = {here / name for name in ("schemas", "agents", "streams")}
    return {path.relative_to(here).as_posix() for path in found if path.is_file() and packages & {*path.parents}}


def _compile(*arguments: str, made: Path) -> None:
    """Run the compiler. What it makes is in its place whole or not at all, and never overwrites what a process runs."""
    fresh = made.with_name(f"{made.name}.new")
    command = [*_compiler(), *FLAGS, f"-I{sysconfig.get_path('include')}", *arguments, "-o", str(fresh)]
    subprocess.run(command, capture_output=True, text=True, check=True)
    fresh.replace(made)


def _place(module: str) -> Path:
    return CORE_PLACE / f"{module}{SUFFIX}"


def _digest(source: Path) -> str:
    return sha256(source.read_bytes()).hexdigest()


def _compiler() -> list[str]:
    """The command that compiles C here; the linker of macOS has to be told that Python comes later."""
    named = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or "clang"]
    return [*named, "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else named
