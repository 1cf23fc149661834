"""SB-102x: everything that AMQP offers on partitioned entities, with the unmodified JavaScript SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from busway.broker.entity.fragment_choice import fragment_of_key
from tests.conformance.node_program import needs_node, run_node
from tests.conformance.topic_traffic import Topic
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.sdk, needs_node]

NewQueue = Callable[..., str]
NewTopic = Callable[..., Topic]
_KEYS = {fragment_of_key(f"key-{n}", 16): f"key-{n}" for n in range(400)}
#: By fragment.
KEYS = [_KEYS[index] for index in range(16)]


@pytest.fixture(params=["queue", "topic"])
def entity(request: pytest.FixtureRequest, new_queue: NewQueue, new_topic: NewTopic) -> dict[str, str]:
    """As the programs are told."""
    if request.param == "queue":
        return {"queue": new_queue(enable_partitioning=True)}
    topic = new_topic(enable_partitioning=True)
    topic.subscribe("s")
    return {"topic": topic.name}


def run(server: RunningServer, scenario: str, **parameters: Any) -> Any:
    return run_node(server, "partitioned.mjs", scenario, keys=KEYS, **parameters)


def test_sb_1020_batch_send_and_batch_receive(server: RunningServer, entity: dict[str, str]) -> None:
    """P-70, P-4, S-20, S-23, S-25: a batch lies in one fragment, in order; distinct keys are refused whole."""
    found = run(server, "batches", **entity)
    assert found["order"] == {name: [f"{name}{number}" for number in range(10)] for name in "abc"}
    assert found["fragmentsOfEach"] == [1, 1, 1]
    assert found["fragmentsOfAll"] == 3
    assert "distinct SessionId or PartitionKey" in found["refused"]["message"]
    assert found["left"] == 0


def test_sb_1021_deferred_messages_peek_and_locks(server: RunningServer, entity: dict[str, str]) -> None:
    """P-70, R-30, R-51, R-55, P-53: by numbers of several fragments, all of them or none."""
    assert run(server, "byNumber", **entity) == {
        "peeked": [[0, 7, 15], [0, 7, 15]],
        "fromNumber": [7, 15],
        "isRenewed": True,
        "missing": "MessageNotFound",
        "deferred": [0, 7, 15],
    }


def test_sb_1022_schedule_and_cancel(server: RunningServer, entity: dict[str, str]) -> None:
    """P-70, S-23, S-33, S-38: numbers carry the fragment, a request is one batch, a cancellation finds them."""
    found = run(server, "schedule", **entity)
    assert "distinct SessionId or PartitionKey" in found.pop("refused")["message"]
    assert found == {
        "fragments": [1, 8],
        "together": 1,
        "missing": "MessageNotFound",
        "again": "MessageNotFound",
        "came": ["comes", 8],
    }


def test_sb_1023_rules(server: RunningServer, new_topic: NewTopic) -> None:
    """P-70, P-62, T-13: added and removed over AMQP, they count in every fragment."""
    topic = new_topic(enable_partitioning=True)
    topic.subscribe("s")
    assert run(server, "rules", topic=topic.name) == {"bodies": ["red"], "fragments": 16, "left": 0}


def test_sb_1024_sessions(server: RunningServer, new_queue: NewQueue) -> None:
    """P-70, X-19, X-20, X-22, C-7: lock, state, peek, deferral; the next session may lie in any fragment."""
    found = run(server, "sessions", queue=new_queue(enable_partitioning=True, requires_session=True))
    names = {KEYS[index]: index for index in (3, 9, 14)}
    assert found["states"] == {name: f"of {name}" for name in names}
    assert sorted(entry["sessionId"] for entry in found["found"]) == sorted(names)
    for entry in found["found"]:
        assert entry == {
            "sessionId": entry["sessionId"],
            "isRenewed": True,
            "peeked": [1, 2],
            "fragments": [names[entry["sessionId"]]],
            "received": [1, 2],
            "deferred": 1,
        }
