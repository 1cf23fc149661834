"""Short words for what the conformance tests do with event hubs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

from busway.client.connection_string import sas_token
from tests.harness.running_server import RunningServer

#: Retries as a user has them, without the long pauses between them.
QUICK: dict[str, Any] = {"retry_total": 2, "retry_backoff_factor": 0.02, "retry_backoff_max": 0.1}
WAIT_S = 100.0


class Hub:
    """An event hub of the running server, managed over HTTP."""

    def __init__(self, server: RunningServer, name: str, **properties: object) -> None:
        self.server = server
        self.name = name
        self._ask("PUT", "", properties)

    @property
    def connection_string(self) -> str:
        return self.server.connection_string

    @property
    def facts(self) -> dict[str, str]:
        """The parts of the connection string."""
        return dict(part.split("=", 1) for part in self.connection_string.split(";") if part)

    def update(self, **properties: object) -> None:
        self._ask("PUT", "", properties, {"If-Match": "*"})

    def delete(self) -> None:
        self._ask("DELETE", "")

    def add_group(self, name: str) -> None:
        self._ask("PUT", f"/consumergroups/{name}", {})

    def token(self, path: str, rule: str, key: str, lifetime_s: int = 600) -> str:
        return sas_token(
            f"sb://127.0.0.1:{self.server.port}/{path}", rule, key, int(time.time()) + lifetime_s
        )

    def _ask(
        self, method: str, below: str, body: object = None, headers: dict[str, str] | None = None
    ) -> None:
        facts = self.facts
        target = f"/$eventhubs/{quote(self.name)}{below}"
        token = self.token("", facts["SharedAccessKeyName"], facts["SharedAccessKey"])
        connection = HTTPConnection("127.0.0.1", self.server.port)
        connection.request(
            method, target, json.dumps(body or {}), {"Authorization": token, **(headers or {})}
        )
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status in (200, 201), text

    # -- clients

    def producer(self, **more: Any) -> EventHubProducerClient:
        return EventHubProducerClient.from_connection_string(
            self.connection_string, eventhub_name=self.name, **{**QUICK, **more}
        )

    def consumer(self, group: str = "$Default", **more: Any) -> EventHubConsumerClient:
        return EventHubConsumerClient.from_connection_string(
            self.connection_string, group, eventhub_name=self.name, **{**QUICK, **more}
        )

    def send(self, *bodies: str, **target: Any) -> None:
        """One batch."""
        with self.producer() as producer:
            producer.send_batch([EventData(body) for body in bodies], **target)

    def read(self, count: int, *, group: str = "$Default", **options: Any) -> list[tuple[str, EventData]]:
        """(partition id, event) of exactly so many, from the start unless told otherwise."""
        with Reading(self.consumer(group), **options) as reading:
            return reading.wait_for(count)


class Reading:
    """A consumer that runs in a thread of its own."""

    def __init__(self, client: EventHubConsumerClient, **options: Any) -> None:
        self.client = client
        self._options = {"starting_position": "-1", **options}
        self.events: list[tuple[str, EventData]] = []
        self.errors: list[Exception] = []
        self.contexts: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        self.client.receive(self._event_came, on_error=self._error_came, **self._options)

    def _event_came(self, context: Any, event: EventData | None) -> None:
        if event is not None:
            self.contexts.append(context)
            self.events.append((context.partition_id, event))

    def _error_came(self, context: Any, error: Exception) -> None:
        del context
        self.errors.append(error)

    def wait_for(self, count: int) -> list[tuple[str, EventData]]:
        until(lambda: len(self.events) >= count or self.errors)
        assert not self.errors, self.errors
        assert len(self.events) == count
        return self.events

    def wait_for_error(self) -> Exception:
        until(lambda: self.errors)
        return self.errors[0]


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def texts(found: list[tuple[str, EventData]]) -> list[str]:
    return [event.body_as_str() for _, event in found]
