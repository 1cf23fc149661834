"""Claims on the command line, with a real server."""

from __future__ import annotations

import http.client
import json
import time

from busway.client.connection_string import ConnectionString, token_for
from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell


def _hold(server: RunningServer, queue: str, stamp: str, count: int) -> None:
    """As a stream does that is then never seen again."""
    target = ConnectionString.parse(server.connection_string)
    connection = http.client.HTTPConnection(target.host, target.http_port)
    headers = {"Authorization": token_for(target, target.audience(queue), time.time())}
    connection.request("POST", f"/{queue}/$claims/{stamp}/take?count={count}", b"", headers)
    taken = json.loads(connection.getresponse().read())
    connection.request(
        "POST", f"/{queue}/$claims/{stamp}/hold", json.dumps({"held": taken["held"]}).encode(), headers
    )
    assert connection.getresponse().status == 200
    connection.close()


def test_what_a_lost_stream_holds_is_listed_and_released(shell: Shell, server: RunningServer) -> None:
    """R-50: deferred for everybody until somebody says that it is not."""
    shell("queue", "create", "orders")
    for body in "abcde":
        shell("send", "orders", "--body", body)
    _hold(server, "orders", "one", 2)
    _hold(server, "orders", "two", 2)
    assert shell.json("claims", "list", "orders") == [
        {"stamp": "one", "messages": 2},
        {"stamp": "two", "messages": 2},
    ]
    assert shell("claims", "list", "orders").split()[:2] == ["STAMP", "MESSAGES"]
    assert len(shell.json("receive", "orders", "--count", "9", "--wait", "0.2")) == 1
    assert shell("claims", "release", "orders", "one") == "2 message(s) of orders are available again.\n"
    assert shell.json("claims", "release", "orders", "--all") == {"released": 2, "locked": 0}
    got = shell.json("receive", "orders", "--count", "9", "--wait", "1")
    assert len(got) == 4
    assert shell.json("claims", "list", "orders") == []


def test_a_call_that_does_not_say_which_claim_is_wrong(shell: Shell) -> None:
    """Command-line contract: exit 2 and a sentence."""
    assert "STAMP, or --all" in shell("claims", "release", "orders", code=2)
    assert "STAMP, or --all" in shell("claims", "release", "orders", "one", "--all", code=2)
    assert shell("claims", "list", "nowhere", code=1)
