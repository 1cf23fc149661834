"""One server for all rows, which have entities of their own; and one for each that fills a namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cost.http_client import HttpClient
from tests.cost.instruments import Instrument
from tests.cost.row import Row
from tests.cost.scene import Scene
from tests.cost.world import World

#: Plays a row with so much of it, under an instrument.
Player = Callable[[Row, int, Instrument], None]


@contextlib.contextmanager
def prepared(folder: Path) -> Iterator[World]:
    """A world in which everything is loaded that comes with the first of its kind."""
    with World(folder) as made, made.meter:
        for path in ("health", "metrics", "$console"):
            client = HttpClient(made)
            assert client.ask("GET", path) == 200
            client.close()
        yield made


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with prepared(tmp_path_factory.mktemp("cost")) as made:
        yield made


@pytest.fixture
def play(world: World, tmp_path_factory: pytest.TempPathFactory) -> Player:
    def played(row: Row, n: int, instrument: Instrument) -> None:
        with contextlib.ExitStack() as stack:
            place = world
            if row.is_crowded:
                place = stack.enter_context(prepared(tmp_path_factory.mktemp("crowd")))
            scene = stack.enter_context(Scene(place, row, instrument))
            row.play(scene, n)
            scene.check()

    return played
