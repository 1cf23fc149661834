"""What tests of signals share."""

from collections.abc import Iterator

import pytest

from tests.unit.gateway.http_exchange import Exchange


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    """The HTTP gateway over a namespace in memory."""
    with Exchange() as made:
        yield made
