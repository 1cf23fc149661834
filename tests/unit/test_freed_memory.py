"""What a server does with memory that it has freed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

#: Page faults of a hundred pieces of a megabyte, two at a time as a chunk and its copy, the first few left out.
FAULTS = """
import resource
{before}
def use():
    for _ in range(50):
        first = b"x" * 1_050_000
        second = first + b"y"
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
KEEPS = "from busway.server import keep_freed_memory; keep_freed_memory()"


def faults(before: str, **environment: str) -> int:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    code = FAULTS.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another library gives memory back its own way")
def test_freed_memory_is_kept_for_what_comes_next() -> None:
    """Speed: a chunk of a megabyte costs no page fault for each of its pages, unless the environment wants it so."""
    assert faults(KEEPS) < 1_000
    assert faults(KEEPS, MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072") > 10_000
