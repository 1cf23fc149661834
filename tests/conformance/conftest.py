"""One real server process per test worker; each test gets queues of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.event_traffic import Hub
from tests.conformance.topic_traffic import Topic
from tests.harness.running_server import RunningServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("busway")) as running:
        yield running


@pytest.fixture
def admin(server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file
    ) as client:
        yield client


@pytest.fixture
def client(server: RunningServer) -> Iterator[ServiceBusClient]:
    """Retries as a user has them, without the long pauses between them."""
    with ServiceBusClient.from_connection_string(
        server.connection_string, retry_backoff_factor=0.02, retry_backoff_max=0.1
    ) as opened:
        yield opened


@pytest.fixture
def new_queue(admin: ServiceBusAdministrationClient, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Creates a queue named after the test, with the SDK's own property names as keywords."""
    made = 0

    def create(**properties: object) -> str:
        nonlocal made
        made += 1
        name = f"{request.node.name.partition('[')[0][:200]}-{made}"
        admin.create_queue(name, **properties)
        return name

    return create


@pytest.fixture
def new_topic(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, request: pytest.FixtureRequest
) -> Callable[..., Topic]:
    """Creates a topic named after the test, with the SDK's own property names as keywords."""
    made = 0

    def create(**properties: object) -> Topic:
        nonlocal made
        made += 1
        name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name)[:200]
        return Topic(f"{name}-t{made}", client, admin, **properties)

    return create


@pytest.fixture
def new_hub(server: RunningServer, request: pytest.FixtureRequest) -> Callable[..., Hub]:
    """Creates an event hub named after the test, with the property names of its management route as keywords."""
    made = 0

    def create(**properties: object) -> Hub:
        nonlocal made
        made += 1
        name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name)[:200]
        return Hub(server, f"{name}-h{made}", **properties)

    return create
