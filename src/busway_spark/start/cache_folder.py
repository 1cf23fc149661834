"""Where programs and archives that we make lie between runs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Of the user alone: what lies there is run. Where the user has no home, one for this process."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(given) if given else Path.home() / ".cache") / "busway"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        return Path(tempfile.mkdtemp(prefix="busway-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="busway-"))
