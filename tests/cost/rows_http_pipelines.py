"""Streams that report themselves over HTTP, and who asks about them."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from busway.gateway.http.pipelines_route import PARTITIONS_MAX, SOURCES_MAX
from busway.message.event_record import Event
from busway.model.descriptions import LISTEN
from tests.cost.http_client import HttpClient
from tests.cost.row import FLAT, HTTP, NOBODY, row
from tests.cost.scene import Scene, payload

_HUB_PARTITIONS = 32


def _source(entity: str, partitions: int) -> dict[str, Any]:
    positions = {str(index): 0 for index in range(partitions)}
    return {"entity": entity, "consumerGroup": "$Default", "positions": positions}


def _report(*sources: dict[str, Any]) -> bytes:
    return json.dumps({"query": uuid4().hex, "run": "1", "sources": list(sources)}).encode()


def _hub(scene: Scene) -> str:
    """With an event in each partition: whoever asks for its age has to read it."""
    path = scene.hub(_HUB_PARTITIONS)

    async def stored() -> None:
        for log in scene.world.hubs.hub(path).logs():
            log.append([Event(payload(100))], lambda _: None)
            await log.durable()

    scene.world.run(stored())
    return path


def _reported(scene: Scene, n: int) -> list[str]:
    """So many pipelines of other entities, each with a partition."""
    client, names = HttpClient(scene.world, LISTEN), [f"crowd-{uuid4().hex}" for _ in range(n)]
    scene.leave(client.close)
    for name in names:
        body = _report(_source(f"hub-of-{name}", 1))
        client.write(client.request("POST", f"$pipelines/{name}", body))
        assert client.hear() == 200
    return names


@row(LISTEN, HTTP, "PipelinesRoute.report", "report {n} sources", SOURCES_MAX, few=16)
def report_sources(scene: Scene, n: int) -> None:
    hub = _hub(scene)
    scene.ask_http("POST", f"$pipelines/p-{uuid4().hex}", _report(*[_source(hub, 1)] * n))


@row(LISTEN, HTTP, "PipelinesRoute.report", "report {n} partitions", PARTITIONS_MAX, few=500)
def report_partitions(scene: Scene, n: int) -> None:
    scene.ask_http("POST", f"$pipelines/p-{uuid4().hex}", _report(_source("nothing", n)))


@row(LISTEN, HTTP, "PipelinesRoute.report", "report one of {n} pipelines", 90, few=20, growth=FLAT)
def report_beside(scene: Scene, n: int) -> None:
    _reported(scene, n)
    scene.ask_http("POST", f"$pipelines/p-{uuid4().hex}", _report(_source(_hub(scene), 1)))


@row(LISTEN, HTTP, "PipelinesRoute.pipeline", "ask for a pipeline of {n} sources", SOURCES_MAX, few=16)
def show(scene: Scene, n: int) -> None:
    hub, client, name = _hub(scene), scene.http(), f"p-{uuid4().hex}"
    client.write(client.request("POST", f"$pipelines/{name}", _report(*[_source(hub, 1)] * n)))
    assert client.hear() == 200
    scene.ask_http("GET", f"$pipelines/{name}")


@row(
    LISTEN,
    HTTP,
    "PipelinesRoute.pipelines",
    "ask for {n} pipelines",
    1_000,
    few=200,
    is_crowded=True,
    unread=1,
)
def list_all(scene: Scene, n: int) -> None:
    _reported(scene, n)
    scene.ask_http("GET", "$pipelines")


@row(LISTEN, HTTP, "PipelinesRoute.delete", "forget one of {n} pipelines", 90, few=20, growth=FLAT)
def delete(scene: Scene, n: int) -> None:
    scene.ask_http("DELETE", f"$pipelines/{_reported(scene, n)[0]}")


@row(NOBODY, HTTP, "PipelinesRoute.report", "report {n} partitions without a token", PARTITIONS_MAX, few=500)
def report_stranger(scene: Scene, n: int) -> None:
    body = _report(_source("nothing", n))
    scene.ask_http("POST", f"$pipelines/p-{uuid4().hex}", body, status=401)


@row(
    NOBODY,
    HTTP,
    "MetricsRoute.answer",
    "ask for the figures of {n} pipelines",
    1_000,
    few=200,
    is_crowded=True,
)
def metrics(scene: Scene, n: int) -> None:
    _reported(scene, n)
    scene.ask_http("GET", "metrics")
