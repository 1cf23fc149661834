"""SB-105x: a namespace whose entities are all partitioned, with the unmodified Python SDK."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.traffic import receive_all
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk


@pytest.fixture(scope="module")
def whole_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("namespace")
    with RunningServer(folder, "--stores", "2", "--namespace-partitions", "4") as running:
        yield running


def test_sb_1050_every_entity_is_partitioned_and_none_can_be_otherwise(whole_server: RunningServer) -> None:
    """C-1, P-7, P-8: 400 with sub-code 40000 and the service's sentence; nothing was created or changed."""
    with ServiceBusAdministrationClient.from_connection_string(
        whole_server.connection_string, connection_verify=whole_server.ca_file
    ) as admin:
        made = admin.create_queue("whole")
        assert (made.enable_partitioning, made.max_size_in_megabytes) == (True, 4096)
        made.enable_partitioning = False
        attempts = (
            lambda: admin.create_queue("plain", enable_partitioning=False),
            lambda: admin.create_topic("plain", enable_partitioning=False),
            lambda: admin.update_queue(made),
        )
        for attempt in attempts:
            with pytest.raises(HttpResponseError) as refused:
                attempt()
            assert refused.value.status_code == 400
            assert "SubCode=40000." in str(refused.value)
        with pytest.raises(HttpResponseError, match="Non-partitioned entities are not allowed"):
            attempts[0]()
        assert [queue.name for queue in admin.list_queues()] == ["whole"]
        assert list(admin.list_topics()) == []
        assert admin.get_queue("whole").enable_partitioning is True
    with ServiceBusClient.from_connection_string(whole_server.connection_string) as client:
        with client.get_queue_sender("whole") as sender:
            for number in range(8):
                sender.send_messages(ServiceBusMessage(str(number)))
        found = receive_all(client, "whole", 8)
        assert {(message.sequence_number or 0) >> 48 for message in found} == {0, 1, 2, 3}
