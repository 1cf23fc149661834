"""Compiles the hot modules with mypyc into src/busway/_compiled. Without a C compiler it says so and leaves
the Python sources to run. Part of `make setup`; does nothing when the compiled modules are up to date."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["BUSWAY_PURE"] = "1"
from busway.compiled import FOLDER, GROUP, HOT_MODULES, source_hash, source_of


def main() -> int:
    recorded = FOLDER / "source-hash"
    if recorded.exists() and recorded.read_text() == source_hash():
        print("compiled modules are up to date")
        return 0
    if shutil.which(os.environ.get("CC", "cc")) is None:
        print("no C compiler found: Busway will run as pure Python")
        return 0
    hash_before = (
        source_hash()
    )  # a source that changes while we compile leaves a stale result, never a wrong one
    build()
    recorded.write_text(hash_before)
    print(f"compiled {len(HOT_MODULES)} modules")
    return 0


def build() -> None:
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    shutil.rmtree(FOLDER, ignore_errors=True)
    root = source_of("busway.message").parents[1]
    os.chdir(root)
    sources = [str(source_of(module).relative_to(root)) for module in HOT_MODULES]
    with tempfile.TemporaryDirectory() as scratch:
        extensions = mypycify(
            ["--strict", "--cache-dir", str(Path(scratch) / "cache"), *sources],
            opt_level="3",
            debug_level="0",
            group_name=GROUP,
            target_dir=scratch,
        )
        command = build_ext(Distribution({"name": GROUP, "ext_modules": extensions}))
        command.build_lib = str(FOLDER)
        command.build_temp = str(Path(scratch) / "objects")
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()


if __name__ == "__main__":
    sys.exit(main())
