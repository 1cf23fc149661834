"""Every test of this folder that takes `world` runs against each kind of store."""

from pathlib import Path

import pytest

from tests.store_contract.scenario import World


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


@pytest.fixture
def sqlite_world(tmp_path: Path) -> World:
    return World("sqlite", tmp_path)
