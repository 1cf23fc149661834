"""Streams that read the bus, on the command line with a real server. No Spark here: the tests write the reports."""

from __future__ import annotations

import json
from typing import Any

from busway.cli.pipeline.status import _COLUMNS
from busway.client.administration import ServiceBusAdministrationClient
from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell


def report(server: RunningServer, name: str, **more: Any) -> None:
    body = {"query": name, "run": "1", **more}
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        client._request("POST", f"/$pipelines/{name}", json.dumps(body).encode(), content="json")


def test_who_reads_what_and_how_far_behind(shell: Shell, server: RunningServer) -> None:
    """Pipelines: listed, shown by partition, forgotten."""
    shell("eventhub", "create", "clicks", "--partitions", "2")
    for _ in range(3):
        shell("events", "send", "clicks", "--body", "x", "--partition", "0")
    source = {"entity": "clicks", "consumerGroup": "$Default", "positions": {"0": 1, "1": 0}}
    failure = {"state": "failed", "failures": 2, "sentence": "The disk is full."}
    report(server, "billing", sources=[source], rows=40, rowsPerSecond=12.4, batch=7, batches=8, batchMs=250)
    report(server, "archive", sources=[source], **failure)

    found = shell.json("pipeline", "list")
    assert [(each["name"], each["state"], each["lagEvents"]) for each in found] == [
        ("archive", "failed", 2),
        ("billing", "running", 2),
    ]
    lines = shell("pipeline", "list").splitlines()
    assert lines[0].split() == list(_COLUMNS)
    assert lines[2].split()[:4] == ["billing", "running", "clicks", "2"]

    assert shell.json("pipeline", "status", "billing")["sources"][0]["partitions"][0]["next"] == 1
    text = shell("pipeline", "status", "archive")
    assert "State:     failed, reported " in text
    assert "Last:      The disk is full." in text
    assert [line.split()[:5] for line in text.splitlines()[-2:]] == [
        ["clicks", "$Default", "0", "1", "2"],
        ["clicks", "$Default", "1", "0", "0"],
    ]

    shell("pipeline", "forget", "archive")
    assert [each["name"] for each in shell.json("pipeline", "list")] == ["billing"]


def test_a_pipeline_that_nobody_knows_is_told(shell: Shell) -> None:
    """Pipelines: a sentence, and exit code 1."""
    assert "No pipeline called 'nobody'" in shell("pipeline", "status", "nobody", code=1)
