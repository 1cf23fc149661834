"""Writes in two phases over HTTP."""

from __future__ import annotations

import json
from struct import pack
from uuid import uuid4

from busway.model.descriptions import MANAGE, SEND
from tests.cost.row import HTTP, row
from tests.cost.scene import Scene, payload


def body_of(n: int, size: int = 1) -> bytes:
    message = payload(size)
    return (pack("<I", len(message)) + message) * n


def _staged(scene: Scene, path: str, n: int) -> tuple[str, str]:
    """So many rows in one stage: the write, the stage."""
    write, stage = uuid4().hex, uuid4().hex
    client = scene.http()
    client.write(client.request("POST", f"$staging/{write}/0/{stage}?entity={path}&part=0", body_of(n)))
    assert client.hear() == 200
    return write, stage


@row(SEND, HTTP, "StagingRoute.stage", "stage {n} rows for a queue", 10_000, few=250, unread=1)
def stage(scene: Scene, n: int) -> None:
    target = f"$staging/{uuid4().hex}/0/{uuid4().hex}?entity={scene.queue()}&part=0"
    scene.ask_http("POST", target, body_of(n))


@row(SEND, HTTP, "StagingRoute.stage", "stage {n} rows for a hub", 10_000, few=250, unread=1)
def stage_for_hub(scene: Scene, n: int) -> None:
    target = f"$staging/{uuid4().hex}/0/{uuid4().hex}?entity={scene.hub()}&part=0"
    scene.ask_http("POST", target, body_of(n))


@row(SEND, HTTP, "StagingRoute.stage", "stage {n} rows of 200 KB", 20)
def stage_large(scene: Scene, n: int) -> None:
    target = f"$staging/{uuid4().hex}/0/{uuid4().hex}?entity={scene.queue()}&part=0"
    scene.ask_http("POST", target, body_of(n, 200_000))


@row(SEND, HTTP, "StagingRoute.decide", "publish {n} staged rows", 10_000, few=250)
def decide(scene: Scene, n: int) -> None:
    write, stage_id = _staged(scene, scene.queue(), n)
    body = json.dumps({"kind": "write", "stages": {stage_id: n}}).encode()
    scene.ask_http("POST", f"$staging/{write}/0?wait=30", body)


@row(SEND, HTTP, "StagingRoute.decide", "publish {n} staged events", 10_000, few=250)
def decide_events(scene: Scene, n: int) -> None:
    write, stage_id = _staged(scene, scene.hub(), n)
    body = json.dumps({"kind": "write", "stages": {stage_id: n}}).encode()
    scene.ask_http("POST", f"$staging/{write}/0?wait=30", body)


@row(SEND, HTTP, "StagingRoute.decide", "name {n} stages in a decision", 10_000, few=500)
def decide_many(scene: Scene, n: int) -> None:
    body = json.dumps({"kind": "write", "stages": {uuid4().hex: 0 for _ in range(n)}}).encode()
    scene.ask_http("POST", f"$staging/{uuid4().hex}/0", body)


@row(SEND, HTTP, "StagingRoute.drop", "drop a stage of {n} rows", 10_000, few=250, growth="flat")
def drop(scene: Scene, n: int) -> None:
    write, stage_id = _staged(scene, scene.queue(), n)
    scene.ask_http("DELETE", f"$staging/{write}/0/{stage_id}")


@row(MANAGE, HTTP, "StagingRoute.forget", "forget a write")
def forget(scene: Scene, _n: int) -> None:
    scene.ask_http("DELETE", "$staging/unknown")


@row(SEND, HTTP, "StagingRoute.tell", "ask what is known of a write")
def told(scene: Scene, _n: int) -> None:
    scene.ask_http("GET", "$staging/unknown", status=404)
