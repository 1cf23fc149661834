"""A server of its own for each test: it will not survive."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.running_server import RunningServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "server") as running:
        yield running


@pytest.fixture(autouse=True)
def _sockets_of_the_sdk() -> Iterator[None]:
    """The SDK forgets to close sockets whose peer was killed; they are collected here, not during another test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
