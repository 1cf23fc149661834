"""What was done to the namespace, by whom."""

import asyncio
import json
import logging

import pytest

from busway.broker.namespace.operations_log import FAILED, OperationsLog
from busway.log_lines import HIDDEN, JsonLines, SecretsFilter
from busway.model.authorization import note_caller, present_caller
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.unit.gateway.http_exchange import HOST, VERSION, Exchange, queue_body, sas_token

KEY = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I="


def new_log() -> OperationsLog:
    return OperationsLog(ManualClock(), SeededEntropy())


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The fields of what was recorded."""
    return [
        dict(record.__dict__["fields"]) for record in caplog.records if record.name == "busway.operations"
    ]


def test_a_record_has_the_fields_of_the_service(caplog: pytest.LogCaptureFixture) -> None:
    """O-7: ActivityId, EventName, Status, Caller, EventProperties, time."""
    with caplog.at_level(logging.INFO, "busway.operations"):
        new_log().record("Create Queue", "orders", caller="Root", properties={"MaxDeliveryCount": 3})
    [record] = caplog.records
    assert record.name == "busway.operations"
    SecretsFilter().filter(record)
    line = json.loads(JsonLines().format(record))
    assert len(line["fields"].pop("ActivityId")) == 36
    assert line["fields"] == {
        "EventName": "Create Queue",
        "EntityName": "orders",
        "Status": "Succeeded",
        "Caller": "Root",
        "EventProperties": {"MaxDeliveryCount": 3},
        "EventTimeString": "2023-11-14T22:13:20+00:00",
    }
    assert line["message"].startswith("Create Queue orders: Succeeded, caller=Root activity=")


def test_a_failure_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """O-7: Status."""
    with caplog.at_level(logging.INFO, "busway.operations"):
        new_log().record("AutoDelete Delete Queue", "q", status=FAILED)
    assert caplog.records[0].levelno == logging.WARNING
    assert "caller=(server)" in caplog.text


def test_each_record_has_an_id_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """O-7: ActivityId."""
    log = new_log()
    with caplog.at_level(logging.INFO, "busway.operations"):
        for number in range(3):
            log.record("Create Queue", f"q{number}")
    assert [fields["EntityName"] for fields in told(caplog)] == ["q0", "q1", "q2"]
    assert len({fields["ActivityId"] for fields in told(caplog)}) == 3


def test_properties_hold_no_secret_and_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """O-7, A-4: keys are named, never shown."""
    given: dict[str, object] = {
        "PrimaryKey": "short",
        "Text": f"sig={KEY}",
        "Long": "x" * 9999,
        "Rules": [KEY],
    }
    given.update({f"p{number}": number for number in range(100)})
    with caplog.at_level(logging.INFO, "busway.operations"):
        new_log().record("Update Queue", "q", properties=given)
    shown = told(caplog)[0]["EventProperties"]
    assert isinstance(shown, dict)
    assert shown["PrimaryKey"] == HIDDEN
    assert KEY not in repr(shown)
    assert len(str(shown["Long"])) == 256
    assert len(shown) == 64


def test_the_caller_travels_with_its_task(caplog: pytest.LogCaptureFixture) -> None:
    """O-7: Caller is the rule that authorised the request; requests side by side do not mix them up."""
    log = new_log()

    async def change(queue: str) -> None:
        await asyncio.sleep(0)
        log.record("Create Queue", queue)

    async def request(rule: str) -> None:
        note_caller(rule)
        await asyncio.sleep(0)
        await asyncio.shield(asyncio.get_running_loop().create_task(change(f"of-{rule}")))

    async def both() -> None:
        await asyncio.gather(request("first"), request("second"))

    with caplog.at_level(logging.INFO, "busway.operations"):
        asyncio.run(both())
    callers = {fields["EntityName"]: fields["Caller"] for fields in told(caplog)}
    assert callers == {"of-first": "first", "of-second": "second"}
    assert present_caller() == ""


def test_a_change_over_http_is_recorded_with_the_rule_that_allowed_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """O-7: Create, Update and Delete, the latter by another rule; a refused request changed nothing."""
    with caplog.at_level(logging.INFO, "busway.operations"), Exchange() as exchange:
        target = f"/orders?{VERSION}"
        exchange.request(
            "PUT", "/$rules/second", '{"rights": ["Manage", "Send", "Listen"], "primaryKey": "k"}'
        )
        exchange.request("PUT", target, queue_body())
        exchange.request("PUT", target, queue_body(), token="nonsense")
        exchange.request("PUT", target, queue_body("<UserMetadata>x</UserMetadata>"), {"if-match": "*"})
        exchange.request("DELETE", target, token=sas_token(f"https://{HOST}", "second", "k"))
    root = "RootManageSharedAccessKey"
    done = [(fields["EventName"], fields["EntityName"], fields["Caller"]) for fields in told(caplog)]
    assert done == [
        ("Create Queue", "orders", root),
        ("Update Queue", "orders", root),
        ("Delete Queue", "orders", "second"),
    ]
