"""Compiles the hot modules with mypyc into src/busway/_compiled. Without a C compiler it says so and leaves
the Python sources to run. Part of `make setup`; does nothing when the compiled modules are up to date.

The sources are copied first and the copy is compiled, so that an edit meanwhile makes the result stale, never wrong.
mypyc turns them into C (c_units.py), all cores compile it, what was compiled before comes out of a cache
(compile_cache.py). The new twin is put in place by replacing its manifest; whatever ends this before
leaves the old one. A second compilation of the same tree waits for the first.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import gc
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

os.environ.pop("BUSWAY_PURE", None)
from c_units import Library, NotCompilable, Units, units_of
from compile_cache import CompileCache, default_folder, key_of

from busway.compiled import FOLDER, GROUP, HOT_MODULES, PACKAGE, SUFFIX, Manifest, digests, status

#: Copies of sources, mypy's cache and C files; kept, because the next compilation is faster with them.
WORKPLACE: Final = PACKAGE.parents[1] / "build" / "compile"
#: -O3 gains nothing that can be measured. Only entries are visible outside, so that calls between modules are direct.
FLAGS: Final = ("-O2", "-g0", "-w", "-fPIC", "-fvisibility=hidden")
#: Twins that processes may still run from, beside the present one.
FORMER_TWINS: Final = 1


class Failed(Exception):
    """The text is for the user."""


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # in a shell's background SIGINT would be ignored
        signal.signal(number, signal.default_int_handler)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    try:
        if status() == "compiled":
            print("compiled modules are up to date")
        elif not compiler or shutil.which(compiler[0]) is None:
            print("no C compiler found: Busway runs as pure Python, which is slower")
        else:
            with only_one():
                if status() != "compiled":  # another one may have done it while we waited
                    compile_all(compiler)
                    print(f"compiled {len(HOT_MODULES)} modules")
    except Failed as error:
        print(f"The hot modules could not be compiled; Busway runs as pure Python.\n{error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"The hot modules could not be compiled; Busway runs as pure Python. {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Compiling was broken off; make setup goes on from here.", file=sys.stderr)
        return 130
    return 0


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """The lock ends with the process, however it ends."""
    WORKPLACE.mkdir(parents=True, exist_ok=True)
    with (WORKPLACE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("another compilation is under way: waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_all(compiler: list[str]) -> None:
    sources = WORKPLACE / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(
        PACKAGE, sources / PACKAGE.name, ignore=shutil.ignore_patterns(FOLDER.name, "__pycache__")
    )
    read = digests(sources_read(sources), sources / PACKAGE.name)
    cache = CompileCache(default_folder())
    inputs = [sys.version, version_of(compiler), *FLAGS, *own_sources(), *HOT_MODULES]
    key = key_of([*inputs, *(f"{file} {digest}" for file, digest in read.items())])
    half = FOLDER / f"{key}.half"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    archive = WORKPLACE / "twin.tar"
    if cache.take(key, archive):
        with tarfile.open(archive) as packed:
            packed.extractall(half, filter="data")
    else:
        make_twin(compiler, sources, half, cache)
        with tarfile.open(archive, "w") as packed:
            packed.add(half, ".")
        cache.keep(key, archive)
    archive.unlink()
    put_in_place(half, Manifest(sys.version, read, key, dict(entries_in(half))))
    cache.prune()


def make_twin(compiler: list[str], sources: Path, twin: Path, cache: CompileCache) -> None:
    tell("reading the hot modules")
    os.chdir(sources)  # file names in tracebacks are relative to the sources
    try:
        units = units_of(HOT_MODULES, GROUP, WORKPLACE / "mypy-cache", WORKPLACE / "c")
    except NotCompilable as error:
        raise Failed(str(error)) from error
    objects = compiled_units(compiler, units, cache)
    for library in units.libraries:
        link(compiler, library, objects, twin)
    (twin / "entries").write_text(
        "".join(f"{module} {name}\n" for module, name in sorted(units.entries.items()))
    )


def entries_in(twin: Path) -> list[tuple[str, str]]:
    lines = (twin / "entries").read_text().splitlines()
    return [(module, name) for module, _, name in (line.partition(" ") for line in lines)]


def compiled_units(compiler: list[str], units: Units, cache: CompileCache) -> dict[str, Path]:
    """Each C file as an object file: the largest first, so that all cores end at about the same time."""
    folder = WORKPLACE / "units"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    include = [f"-I{path}" for path in (*units.include_folders, sysconfig.get_paths()["include"])]
    platform_flags = shlex.split(sysconfig.get_config_var("CFLAGS") or "")
    command = [*compiler, *platform_flags, *FLAGS, *include]
    # The headers of Python and of mypyc's runtime are told by their versions, their paths do not matter.
    common = [sys.version, version_of(compiler), version_of_mypyc(), *platform_flags, *FLAGS]
    names = sorted(units.texts, key=lambda name: -len(units.texts[name]))

    def compiled(name: str) -> Path:
        file, made = folder / name, folder / f"{name}.o"
        file.write_text(units.texts[name])
        key = key_of([*common, name, units.texts[name]])
        if not cache.take(key, made):
            run([*command, "-c", str(file), "-o", str(made)])
            cache.keep(key, made)
        return made

    objects = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        tasks = {pool.submit(compiled, name): name for name in names}
        try:
            for number, task in enumerate(as_completed(tasks), 1):
                objects[tasks[task]] = task.result()
                tell(f"compiling: {number} of {len(names)}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return objects


def link(compiler: list[str], library: Library, objects: dict[str, Path], twin: Path) -> None:
    """As Python's own extensions are linked on this platform."""
    usual = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    flags = usual[next((place for place, word in enumerate(usual) if word.startswith("-")), len(usual)) :]
    files = [str(objects[name]) for name in library.units]
    run([*compiler, *flags, "-o", str(twin / f"{library.name}{SUFFIX}"), *files])


def put_in_place(half: Path, manifest: Manifest) -> None:
    """The manifest makes it the present one. Those before the last are removed."""
    former = Manifest.read(FOLDER)
    twin = FOLDER / manifest.twin
    shutil.rmtree(twin, ignore_errors=True)
    half.rename(twin)
    manifest.write(FOLDER)
    kept = {twin, *([FOLDER / former.twin] if former else [])}
    for other in FOLDER.iterdir():
        if other.is_dir() and other not in kept:
            shutil.rmtree(other, ignore_errors=True)


def sources_read(root: Path) -> list[str]:
    """The hot modules and what they import, directly or not: files relative to the package."""
    todo, found = list(HOT_MODULES), set[str]()
    while todo:
        stem = todo.pop().replace(".", "/")
        file = next((name for name in (f"{stem}.py", f"{stem}/__init__.py") if (root / name).is_file()), None)
        if file is None or file in found or not file.startswith(f"{PACKAGE.name}/"):
            continue
        found.add(file)
        for node in ast.walk(ast.parse((root / file).read_bytes())):
            if isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                todo += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return sorted(file.removeprefix(f"{PACKAGE.name}/") for file in found)


def own_sources() -> list[bytes]:
    """Another way of compiling makes another twin."""
    return [(Path(__file__).parent / name).read_bytes() for name in ("compile_hot_modules.py", "c_units.py")]


def version_of(compiler: list[str]) -> str:
    return run([*compiler, "--version"])


def version_of_mypyc() -> str:
    from importlib.metadata import version

    return version("mypy")


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(
            f"{shlex.join(command[:1])} failed with status {done.returncode}:\n{done.stderr.strip()[-2000:]}"
        )
    return done.stdout


def tell(what: str) -> None:
    """One line that changes on a terminal; elsewhere nothing, a log wants no progress."""
    if sys.stdout.isatty():
        print(f"\r\033[K{what}", end="", flush=True)


if __name__ == "__main__":
    gc.disable()  # what mypy builds is needed until the end
    ended = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)  # to take all that apart would last seconds
