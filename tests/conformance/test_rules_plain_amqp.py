"""SB-97x: rules over AMQP by a client that knows nothing of Service Bus: every field and type of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from busway.client.connection_string import ConnectionString
from tests.conformance.topic_traffic import Topic
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

try:
    from proton import Described, Message, int32, symbol, timestamp, ulong
    from proton.utils import BlockingConnection, LinkDetached
except ImportError:
    HAS_PROTON = False
else:
    HAS_PROTON = True

needs_proton = pytest.mark.skipif(
    not HAS_PROTON, reason="python-qpid-proton is not installed: proton was not tried"
)
NewTopic = Callable[..., Topic]
Ask = Callable[[str, object], tuple[int, str | None, Any]]
RULE, EMPTY_ACTION, SQL_ACTION = 0x13700000004, 0x13700000005, 0x13700000006
SQL_FILTER, TRUE_FILTER, CORRELATION_FILTER = 0x1370000006, 0x1370000007, 0x1370000009


@contextmanager
def asking(server: RunningServer, node: str) -> Iterator[Ask]:
    """Requests to a node: (status, condition, body) of each answer."""
    parts = ConnectionString.parse(server.connection_string)
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{server.port}",
        timeout=100,
        user=parts.key_name,
        password=parts.key,
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
    )
    try:
        answers = connection.create_receiver(node, credit=100)
        requests = connection.create_sender(node)

        def ask(operation: str, body: object) -> tuple[int, str | None, Any]:
            properties = {"operation": f"com.microsoft:{operation}"}
            requests.send(Message(id=operation, reply_to=node, properties=properties, body=body))
            answer = answers.receive(timeout=100)
            assert answer.correlation_id == operation
            told = answer.properties
            assert told["statusCode"] == told["status-code"]
            assert isinstance(told["statusCode"], int32)
            failure = told.get("errorCondition")
            assert failure is None or isinstance(failure, symbol)
            return int(told["statusCode"]), failure, answer.body

        yield ask
    finally:
        connection.close()


def listed(ask: Ask) -> dict[str, list[Any]]:
    """Name → [filter, action, name, time] of every rule."""
    status, _, body = ask("enumerate-rules", {"top": int32(100), "skip": int32(0)})
    if status == 204:
        return {}
    assert status == 200
    found: dict[str, list[Any]] = {}
    for entry in body["rules"]:
        assert list(entry) == ["rule-description"]
        description = entry["rule-description"]
        assert isinstance(description, Described)
        assert isinstance(description.descriptor, ulong)
        assert description.descriptor == RULE
        assert len(description.value) == 4
        assert isinstance(description.value[3], timestamp)
        found[description.value[2]] = description.value
    return found


@needs_proton
def test_sb_970_rules_field_by_field(server: RunningServer, new_topic: NewTopic) -> None:
    """T-11, E-64, E-70, E-73, E-74: added as maps, listed as described lists with the service's own codes."""
    topic = new_topic()
    topic.subscribe("s")
    with asking(server, f"{topic.path_of('s')}/$management") as ask:
        ((wanted, action, _, _),) = listed(ask).values()
        assert (wanted.descriptor, wanted.value) == (TRUE_FILTER, [])
        assert (action.descriptor, action.value) == (EMPTY_ACTION, [])
        acting = {"sql-filter": {"expression": "n > 1"}, "sql-rule-action": {"expression": "SET n = 1"}}
        assert ask("add-rule", {"rule-name": "acting", "rule-description": acting}) == (200, None, {})
        properties = {"text": "x", "small": int32(7), "large": 2**40, "half": 0.5, "yes": True}
        properties["when"] = timestamp(1_767_323_045_000)
        fields = {"correlation-id": "c", "label": "l", "content-type": "t", "properties": properties}
        correlation = {"correlation-filter": fields}
        assert ask("add-rule", {"rule-name": "correlation", "rule-description": correlation})[0] == 200
        found = listed(ask)
        assert list(found) == ["$Default", "acting", "correlation"]
        wanted, action, *_ = found["acting"]
        assert (wanted.descriptor, wanted.value) == (SQL_FILTER, ["n > 1", 20])
        assert (action.descriptor, action.value) == (SQL_ACTION, ["SET n = 1", 20])
        assert isinstance(wanted.value[1], int32)
        wanted, action, *_ = found["correlation"]
        assert (wanted.descriptor, action.descriptor) == (CORRELATION_FILTER, EMPTY_ACTION)
        assert wanted.value[:8] == ["c", None, None, None, "l", None, None, "t"]
        kept = wanted.value[8]
        assert kept == properties
        assert {name: type(value) for name, value in kept.items()} == {
            name: type(value) for name, value in properties.items()
        }


@needs_proton
def test_sb_971_mistakes_have_a_status_and_a_condition(server: RunningServer, new_topic: NewTopic) -> None:
    """T-11, T-36, T-42, ERR-1, ERR-2, ERR-19, ERR-28, ERR-40: and the node goes on answering."""
    topic = new_topic()
    topic.subscribe("s")
    with asking(server, f"{topic.path_of('s')}/$management") as ask:
        wrong = {"sql-filter": {"expression": "color ="}}
        empty: dict[str, object] = {"correlation-filter": {}}
        found = [
            ask("add-rule", {"rule-name": "$Default", "rule-description": {}})[:2],
            ask("add-rule", {"rule-name": "r", "rule-description": wrong})[:2],
            ask("add-rule", {"rule-name": "r", "rule-description": empty})[:2],
            ask("add-rule", {"rule-name": "r"})[:2],
            ask("add-rule", ["rule-name", "r"])[:2],
            ask("remove-rule", {"rule-name": "r"})[:2],
            ask("change-rule", {"rule-name": "r"})[:2],
        ]
        assert found == [
            (409, "com.microsoft:entity-already-exists"),
            *[(400, "com.microsoft:argument-error")] * 4,
            (404, "amqp:not-found"),
            (501, "amqp:not-implemented"),
        ]
        assert ask("remove-rule", {"rule-name": "$default"}) == (200, None, {})
        assert listed(ask) == {}


@needs_proton
def test_sb_972_a_missing_subscription_has_no_node(server: RunningServer, new_topic: NewTopic) -> None:
    """ERR-1, E-8: the attach is refused with the sentence that clients look for."""
    topic = new_topic()
    with (
        pytest.raises(LinkDetached, match="could not be found"),
        asking(server, f"{topic.path_of('none')}/$management"),
    ):
        pass
