"""The console: its page and files for strangers, and the figures that it shows."""

from __future__ import annotations

import json
from time import time
from urllib.parse import quote

from busway.client.connection_string import sas_token
from busway.gateway.http.console.page_files import PageFiles
from busway.gateway.http.console.sign_in_codes import CODES_MAX
from busway.model.descriptions import LISTEN
from tests.cost.http_client import HttpClient
from tests.cost.row import FLAT, HTTP, NOBODY, row
from tests.cost.rows_http import crowd
from tests.cost.scene import Scene
from tests.cost.world import rule_of


def _files(scene: Scene) -> None:
    """Read by the server when they are asked for first."""
    client = scene.http()
    client.write(client.request("GET", "$console"))
    assert client.hear() == 200


@row(
    NOBODY,
    HTTP,
    "ConsoleRoutes.page",
    "load the console of {n} queues",
    1_000,
    few=100,
    growth=FLAT,
    is_crowded=True,
)
def page(scene: Scene, n: int) -> None:
    crowd(scene, n)
    _files(scene)
    scene.ask_http("GET", "$console")


@row(NOBODY, HTTP, "ConsoleRoutes.file", "load the largest file of the console", unread=20)
def file(scene: Scene, _: int) -> None:
    _files(scene)
    files = PageFiles()
    largest = max(files.names(), key=lambda name: len(getattr(files.find(name), "content", b"")))
    scene.ask_http("GET", files.address(largest).removeprefix("/"))


@row(NOBODY, HTTP, "ConsoleRoutes.redeem_code", "guess a code among {n}", CODES_MAX, few=16, growth=FLAT)
def guess(scene: Scene, n: int) -> None:
    _leave(scene, n)
    scene.ask_http("POST", "$console/codes/redeem", json.dumps({"code": "x" * 60_000}).encode(), status=401)


@row(LISTEN, HTTP, "ConsoleRoutes.leave_token", "leave a token beside {n}", CODES_MAX, few=16, growth=FLAT)
def leave_token(scene: Scene, n: int) -> None:
    client, token = HttpClient(scene.world), _leave(scene, n)
    scene.leave(client.close)
    body = json.dumps({"token": token, "below": ""}).encode()
    request = client.request("POST", "$console/codes", body, {"Authorization": token})
    with scene.measured():
        client.write(request)
        if scene.reads:
            assert client.hear() == 201


def _leave(scene: Scene, n: int) -> str:
    token = sas_token("https://localhost/", *rule_of(LISTEN), int(time()) + 3600)
    client = HttpClient(scene.world)
    scene.leave(client.close)
    body = json.dumps({"token": token, "below": ""}).encode()
    for _ in range(n):
        client.write(client.request("POST", "$console/codes", body, {"Authorization": token}))
        assert client.hear() == 201
    return token


@row(
    LISTEN,
    HTTP,
    "ConsoleRoutes.tell_overview",
    "ask for the rows of {n} queues",
    2_000,
    few=100,
    is_crowded=True,
    unread=1,
)
def overview(scene: Scene, n: int) -> None:
    crowd(scene, n)
    scene.ask_http("GET", "$overview")


@row(
    LISTEN,
    HTTP,
    "ConsoleRoutes.rates",
    "ask for the rates of {n} queues",
    1_000,
    few=100,
    growth=FLAT,
    is_crowded=True,
)
def rates(scene: Scene, n: int) -> None:
    crowd(scene, n)
    scene.ask_http("GET", "$rates")


@row(LISTEN, HTTP, "ConsoleRoutes.entity_rates", "ask for the rates of a name of {n} segments", 100, few=20)
def entity_rates(scene: Scene, n: int) -> None:
    scene.ask_http("GET", f"$rates/{quote('/'.join(['a'] * n))}")
