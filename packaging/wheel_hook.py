"""Hatchling asks this file when it builds a wheel: `BUSWAY_WHEEL=compiled` puts the compiled modules into it.

Such a wheel is for one version of Python on one platform, and says so in its name. Its manifest names that pair
instead of the very interpreter that compiled (`busway.compiled.Manifest`). Digests of the sources stay, so that in
an installed package too a twin runs only beside the sources that it was made of. Without the variable, and for an
editable installation, a wheel has the Python sources alone.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledModules(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard" or os.environ.get("BUSWAY_WHEEL") != "compiled":
            return
        compiled = _compiled(Path(self.root) / "src" / "busway" / "compiled.py")
        manifest = compiled.Manifest.read(compiled.FOLDER)
        if manifest is None or not manifest.fits():
            raise SystemExit("The compiled modules are missing or stale: make dist compiles them first.")
        folder = Path(self.directory)
        folder.mkdir(parents=True, exist_ok=True)
        replace(manifest, interpreter=compiled.SUFFIX).write(folder)
        place = f"busway/{compiled.FOLDER.name}"
        build_data["force_include"][str(folder / compiled.MANIFEST)] = f"{place}/{compiled.MANIFEST}"
        build_data["force_include"][str(compiled.FOLDER / manifest.twin)] = f"{place}/{manifest.twin}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        (Path(self.directory) / "manifest.json").unlink(missing_ok=True)


def _compiled(file: Path) -> ModuleType:
    """By its path: what Busway imports is not there while it is built."""
    spec = importlib.util.spec_from_file_location("compiled_modules", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["compiled_modules"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
