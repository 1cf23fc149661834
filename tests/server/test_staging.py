"""Writes in two phases over HTTP, with a real server that is killed in between."""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection
from pathlib import Path

from busway.client.connection_string import ConnectionString, token_for
from tests.harness.running_server import RunningServer
from tests.unit.gateway.http_exchange import queue_body
from tests.unit.staging.staging_bench import part_of, stage_id, texts


class Wire:
    """One connection to the server, to be closed."""

    def __init__(self, server: RunningServer) -> None:
        self._connection = HTTPConnection("127.0.0.1", server.port)
        self._target = ConnectionString.parse(server.connection_string)

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, target: str, body: bytes | str = b"") -> tuple[int, str]:
        host = f"127.0.0.1:{self._connection.port}"
        token = token_for(self._target, f"http://{host}/", time.time())
        self._connection.request(method, target, body, {"Authorization": token, "Host": host})
        answer = self._connection.getresponse()
        return answer.status, answer.read().decode()


def test_a_write_in_two_phases_against_a_real_server(tmp_path: Path) -> None:
    """Staging: stage, decide, known, drop, over sockets and with stores on a disk; a restart forgets nothing."""
    server = RunningServer(tmp_path)
    with server:
        wire = Wire(server)
        assert wire.ask("PUT", "/orders?api-version=2024-05", queue_body())[0] == 201
        first, second, third = stage_id(1), stage_id(2), stage_id(3)
        parts = [part_of(*texts(0, 100)), part_of(*texts(100, 100))]
        for number, body in enumerate(parts):
            status, text = wire.ask("POST", f"/$staging/q/0/{first}?entity=orders&part={number}", body)
            assert (status, json.loads(text)) == (200, {"rows": 100 * (number + 1), "parts": number + 1})
        wire.ask("POST", f"/$staging/q/0/{second}?entity=orders&part=0", parts[0])
        assert _active(wire) == 0
        wire.close()
        server.kill()
        server.start()
        wire = Wire(server)
        decision = json.dumps({"kind": "stream", "stages": {first: 200}})
        status, text = wire.ask("POST", "/$staging/q/0?wait=30", decision)
        assert (status, json.loads(text)) == (200, {"decided": 200, "known": False, "published": True})
        assert _active(wire) == 200
        status, text = wire.ask("POST", "/$staging/q/0?wait=30", decision)
        assert (status, json.loads(text)) == (200, {"decided": 200, "known": True, "published": True})
        assert wire.ask("DELETE", f"/$staging/q/0/{second}") == (200, '{"dropped":false}')
        wire.ask("POST", f"/$staging/q/1/{third}?entity=orders&part=0", parts[0])
        assert wire.ask("DELETE", f"/$staging/q/1/{third}") == (200, '{"dropped":true}')
        assert wire.ask("GET", "/$staging/q") == (200, '{"batch":0,"kind":"stream","published":true}')
        assert _active(wire) == 200
        wire.close()


def _active(wire: Wire) -> int:
    status, text = wire.ask("GET", "/$fragments/orders")
    assert status == 200
    return sum(int(each["active"]) for each in json.loads(text))
