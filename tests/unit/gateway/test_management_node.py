"""The management node: operations, rights, types of answers, and what bad requests get."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from busway.amqp.sections import DATA, VALUE, AmqpMessage, decode_message, encode_message, scan
from busway.amqp.types import Array, Int, Long, Symbol, Timestamp, UInt
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.gateway.amqp.nodes.management_node import OPERATIONS
from busway.gateway.amqp.nodes.management_operations import _VERBS
from busway.model.descriptions import AuthorizationRule, QueueDescription
from busway.model.limits import Limits
from busway.model.settlement import Verb
from tests.unit.gateway.node_bench import (
    NodeBench,
    condition,
    on_a_bench,
    request,
    sentence,
    status,
    uuid_of,
)

HELLO = ServiceBusMessage(b"hello", message_id="m-1")
FAR_MS = 1_700_000_000_000 + 3_600_000
EVERYTHING: dict[str, object] = {"from-sequence-number": Long(0), "message-count": Int(100)}


def tokens(*lock_tokens: UUID) -> Array:
    return Array(list(lock_tokens), 0x98)


def longs(*numbers: int) -> Array:
    return Array([Long(number) for number in numbers], 0x81)


async def numbers_seen(bench: NodeBench, path: str) -> list[int | None]:
    answer = await bench.ask(path, "peek-message", EVERYTHING)
    if status(answer) == 204:
        return []
    return [ServiceBusReceivedMessage(entry["message"]).sequence_number for entry in answer.body["messages"]]


# -- peek


def test_peek_shows_whole_messages_in_order() -> None:
    """R-60, R-62, R-63, R-64: copies with their state, from a number on, no lock visible; 204 when none."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        assert status(await bench.ask("orders", "peek-message", EVERYTHING)) == 204
        await bench.send("orders", HELLO, HELLO, HELLO)
        await bench.lock("orders", 1)
        answer = await bench.ask(
            "orders", "peek-message", {"from-sequence-number": Long(2), "message-count": Int(10)}
        )
        assert status(answer) == 200
        messages = [decode_message(entry["message"]) for entry in answer.body["messages"]]
        annotations = [message.message_annotations or {} for message in messages]
        assert [each["x-opt-sequence-number"] for each in annotations] == [2, 3]
        assert annotations[0]["x-opt-message-state"] == 0
        assert "x-opt-locked-until" not in annotations[0]
        assert messages[0].delivery_annotations is None
        assert await numbers_seen(bench, "orders") == [1, 2, 3]

    on_a_bench(test)


def test_peek_answers_at_most_the_limit() -> None:
    """L-15, R-65: asking for more is no error."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", *[HELLO] * 5)
        assert await numbers_seen(bench, "orders") == [1, 2, 3]

    on_a_bench(test, Limits(peek_messages_max=3))


def test_peek_leaves_the_bodies_out_when_asked() -> None:
    """R-60: all the rest is there, and how many bytes were left out; the message itself keeps its body."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        footed = AmqpMessage(
            [b"x" * 300, b"y"],
            DATA,
            delivery_annotations={Symbol("hop"): "h"},
            application_properties={"a": 1},
            footer={Symbol("f"): 1},
        )
        await bench.send("orders", HELLO)
        await bench.send_encoded("orders", encode_message(footed), encode_message(AmqpMessage("text", VALUE)))
        body = {**EVERYTHING, "omit-message-body": True}
        answer = await bench.ask("orders", "peek-message", body)
        entries = [entry["message"] for entry in answer.body["messages"]]
        assert [scan(entry).body_kind for entry in entries] == [0, 0, 0]
        messages = [decode_message(entry) for entry in entries]
        sizes = [(each.delivery_annotations or {})["omitted-message-body-size"] for each in messages]
        assert sizes[1] == len(b"\x00Su\xb0") + 4 + 300 + len(b"\x00Su\xa0\x01y")
        assert all(type(size) is Long and size > 0 for size in sizes)
        assert (messages[1].delivery_annotations or {})["hop"] == "h"
        assert messages[1].application_properties == {"a": 1}
        assert messages[1].footer == {"f": 1}
        numbers = [(each.message_annotations or {})["x-opt-sequence-number"] for each in messages]
        assert numbers == [1, 2, 3]
        for whole in (False, None):
            answer = await bench.ask("orders", "peek-message", {**EVERYTHING, "omit-message-body": whole})
            assert b"".join(decode_message(answer.body["messages"][1]["message"]).body) == b"x" * 300 + b"y"

    on_a_bench(test)


@pytest.mark.parametrize("value", [1, "true", b"", [True]])
def test_a_peek_that_leaves_bodies_out_says_so_with_a_boolean(value: object) -> None:
    """R-60, ERR-7: a peek that leaves bodies out says so with a boolean."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        answer = await bench.ask("orders", "peek-message", {**EVERYTHING, "omit-message-body": value})
        assert status(answer) == 400

    on_a_bench(test)


def test_peek_of_one_session_shows_only_that_session() -> None:
    """R-66: needs no lock; without a session id all sessions are seen."""

    async def test(bench: NodeBench) -> None:
        await bench.queue(QueueDescription("orders", requires_session=True))
        await bench.send("orders", replace(HELLO, session_id="a"), replace(HELLO, session_id="b"))
        answer = await bench.ask("orders", "peek-message", {**EVERYTHING, "session-id": "b"})
        assert len(answer.body["messages"]) == 1
        assert await numbers_seen(bench, "orders") == [1, 2]

    on_a_bench(test)


# -- schedule, cancel


def test_scheduling_returns_an_array_of_longs_and_cancelling_deletes() -> None:
    """S-30, S-31, S-33: numbers come back as a real array; peek shows the state until it is cancelled."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        entries = [{"message-id": "m", "message": HELLO.encode(FAR_MS)} for _ in range(2)]
        answer = await bench.ask("orders", "schedule-message", {"messages": entries})
        numbers = decode_message(encode_message(answer)).body["sequence-numbers"]
        assert isinstance(numbers, Array)
        assert numbers.code == 0x81
        assert numbers.items == [1, 2]
        seen = await bench.ask("orders", "peek-message", EVERYTHING)
        assert ServiceBusReceivedMessage(seen.body["messages"][0]["message"]).state == "scheduled"
        cancelled = await bench.ask("orders", "cancel-scheduled-message", {"sequence-numbers": longs(1, 2)})
        assert (status(cancelled), cancelled.body) == (200, {})
        assert await numbers_seen(bench, "orders") == []

    on_a_bench(test)


def test_cancelling_an_unknown_number_fails_as_a_whole() -> None:
    """S-33, ERR-14: 404 com.microsoft:message-not-found, and nothing is cancelled."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.ask("orders", "schedule-message", {"messages": [{"message": HELLO.encode(FAR_MS)}]})
        answer = await bench.ask("orders", "cancel-scheduled-message", {"sequence-numbers": longs(1, 99)})
        assert (status(answer), condition(answer)) == (404, "com.microsoft:message-not-found")
        assert await numbers_seen(bench, "orders") == [1]

    on_a_bench(test)


def test_nobody_schedules_into_a_dead_letter_queue() -> None:
    """E-10: amqp:not-allowed."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        body = {"messages": [{"message": HELLO.encode(FAR_MS)}]}
        answer = await bench.ask("orders/$DeadLetterQueue", "schedule-message", body)
        assert (status(answer), condition(answer)) == (400, "amqp:not-allowed")

    on_a_bench(test)


def test_a_scheduled_message_has_the_size_limit_of_every_message() -> None:
    """L-5, S-8, ERR-10: 403 amqp:link:message-size-exceeded."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        payload = ServiceBusMessage(b"x" * 300_000).encode(FAR_MS)
        answer = await bench.ask("orders", "schedule-message", {"messages": [{"message": payload}]})
        assert (status(answer), condition(answer)) == (403, "amqp:link:message-size-exceeded")

    on_a_bench(test)


# -- locks


def test_a_renewed_lock_lasts_a_whole_duration_again() -> None:
    """R-30: an array of timestamps, now + LockDuration."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", HELLO)
        [delivery] = await bench.lock("orders", 1)
        bench.clock.advance(50)
        answer = await bench.ask("orders", "renew-lock", {"lock-tokens": tokens(uuid_of(delivery))})
        expirations = decode_message(encode_message(answer)).body["expirations"]
        assert expirations.code == 0x83
        assert expirations.items == [bench.clock.wall_ms() + 60_000]

    on_a_bench(test)


def test_an_unknown_lock_cannot_be_renewed_or_settled() -> None:
    """R-17, R-30, ERR-11: 410 com.microsoft:message-lock-lost."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        for operation in ("renew-lock", "update-disposition"):
            body = {"lock-tokens": tokens(uuid4()), "disposition-status": "completed"}
            answer = await bench.ask("orders", operation, body)
            assert (status(answer), condition(answer)) == (410, "com.microsoft:message-lock-lost")

    on_a_bench(test)


def test_a_message_is_completed_away_from_its_link() -> None:
    """R-18, R-19: the lock outlives the link and is settled here."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", HELLO)
        [delivery] = await bench.lock("orders", 1)
        body = {"disposition-status": "completed", "lock-tokens": tokens(uuid_of(delivery))}
        answer = await bench.ask("orders", "update-disposition", body)
        assert (status(answer), answer.body) == (200, {})
        assert await numbers_seen(bench, "orders") == []
        assert (
            condition(await bench.ask("orders", "update-disposition", body))
            == "com.microsoft:message-lock-lost"
        )

    on_a_bench(test)


def test_abandoned_and_released_differ_by_the_count() -> None:
    """R-11, R-12, R-18: abandon counts and changes properties, release does neither."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", HELLO, HELLO)
        first, second = await bench.lock("orders", 2)
        changes = {"properties-to-modify": {"colour": "red"}}
        await bench.ask(
            "orders",
            "update-disposition",
            {"disposition-status": "abandoned", "lock-tokens": tokens(uuid_of(first)), **changes},
        )
        await bench.ask(
            "orders",
            "update-disposition",
            {"disposition-status": "released", "lock-tokens": tokens(uuid_of(second))},
        )
        again = await bench.lock("orders", 2)
        assert [delivery.message.delivery_count for delivery in again] == [1, 0]
        peeked = await bench.ask("orders", "peek-message", EVERYTHING)
        abandoned = ServiceBusReceivedMessage(peeked.body["messages"][0]["message"])
        assert abandoned.application_properties == {"colour": "red"}

    on_a_bench(test)


def test_suspended_means_dead_lettered_with_reason_and_description() -> None:
    """R-14, R-18, D-6: both words arrive as application properties in the dead-letter queue."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", HELLO)
        [delivery] = await bench.lock("orders", 1)
        body = {
            "disposition-status": "suspended",
            "lock-tokens": tokens(uuid_of(delivery)),
            "deadletter-reason": "broken",
            "deadletter-description": "in two",
        }
        assert status(await bench.ask("orders", "update-disposition", body)) == 200
        seen = await bench.ask("orders/$DeadLetterQueue", "peek-message", EVERYTHING)
        dead = ServiceBusReceivedMessage(seen.body["messages"][0]["message"])
        assert dead.application_properties["DeadLetterReason"] == "broken"
        assert dead.application_properties["DeadLetterErrorDescription"] == "in two"
        assert await numbers_seen(bench, "orders") == []

    on_a_bench(test)


def test_every_verb_of_settlement_has_a_status() -> None:
    """R-18: and both spellings of deferral are understood. What a claim does is not for clients."""
    assert set(_VERBS.values()) == set(Verb) - {Verb.HOLD}
    assert _VERBS["defered"] is _VERBS["deferred"] is Verb.DEFER


# -- deferred messages


def test_a_deferred_message_comes_back_by_its_number_and_can_be_completed() -> None:
    """R-13, R-50, R-51, M-27b: lock token beside the message and inside it, state 1."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", HELLO)
        [delivery] = await bench.lock("orders", 1)
        await bench.ask(
            "orders",
            "update-disposition",
            {"disposition-status": "defered", "lock-tokens": tokens(uuid_of(delivery))},
        )
        fetch = {"sequence-numbers": longs(1), "receiver-settle-mode": UInt(1)}
        answer = await bench.ask("orders", "receive-by-sequence-number", fetch)
        [entry] = decode_message(encode_message(answer)).body["messages"]
        fetched = decode_message(entry["message"])
        assert fetched.delivery_annotations == {"x-opt-lock-token": entry["lock-token"]}
        annotations = fetched.message_annotations or {}
        assert annotations["x-opt-message-state"] == 1
        assert "x-opt-locked-until" in annotations
        body = {"disposition-status": "completed", "lock-tokens": tokens(entry["lock-token"])}
        assert status(await bench.ask("orders", "update-disposition", body)) == 200
        assert await numbers_seen(bench, "orders") == []

    on_a_bench(test)


def test_a_deferred_message_can_be_taken_and_deleted_at_once() -> None:
    """R-51: receiver-settle-mode 0 deletes and gives no lock."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", HELLO)
        [delivery] = await bench.lock("orders", 1)
        deferral = {"disposition-status": "deferred", "lock-tokens": tokens(uuid_of(delivery))}
        await bench.ask("orders", "update-disposition", deferral)
        fetch = {"sequence-numbers": longs(1), "receiver-settle-mode": UInt(0)}
        answer = await bench.ask("orders", "receive-by-sequence-number", fetch)
        assert "lock-token" not in answer.body["messages"][0]
        assert await numbers_seen(bench, "orders") == []

    on_a_bench(test)


def test_one_number_that_is_not_deferred_fails_the_fetch() -> None:
    """R-52, ERR-14: 404 com.microsoft:message-not-found, all or nothing."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", HELLO)
        answer = await bench.ask("orders", "receive-by-sequence-number", {"sequence-numbers": longs(1)})
        assert (status(answer), condition(answer)) == (404, "com.microsoft:message-not-found")
        assert "Failed to lock one or more specified messages" in sentence(answer)

    on_a_bench(test)


# -- batch delete


def test_a_batch_of_old_messages_is_deleted_and_counted() -> None:
    """R-80, R-81, R-83: before the time, locked ones skipped, the number as an int; 204 when none is left."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.send("orders", *[HELLO] * 4)
        await bench.lock("orders", 1)
        bench.clock.advance(1)
        before = Timestamp(bench.clock.wall_ms())
        await bench.send("orders", HELLO)
        body = {"message-count": Int(100), "enqueued-time-utc": before}
        answer = await bench.ask("orders", "batch-delete-messages", body)
        count = decode_message(encode_message(answer)).body["message-count"]
        assert (type(count), count) == (Int, 3)
        assert await numbers_seen(bench, "orders") == [1, 5]
        assert status(await bench.ask("orders", "batch-delete-messages", body)) == 204

    on_a_bench(test)


def test_more_than_the_limit_cannot_be_deleted_at_once() -> None:
    """L-16, ERR-8: com.microsoft:argument-out-of-range."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        body = {"message-count": Int(501), "enqueued-time-utc": Timestamp(0)}
        answer = await bench.ask("orders", "batch-delete-messages", body)
        assert (status(answer), condition(answer)) == (400, "com.microsoft:argument-out-of-range")
        assert "'message-count'" in sentence(answer)

    on_a_bench(test)


# -- rights


RIGHT_OF = {
    "renew-lock": "Listen",
    "update-disposition": "Listen",
    "peek-message": "Listen",
    "receive-by-sequence-number": "Listen",
    "batch-delete-messages": "Listen",
    "renew-session-lock": "Listen",
    "get-session-state": "Listen",
    "set-session-state": "Listen",
    "get-message-sessions": "Listen",
    "schedule-message": "Send",
    "cancel-scheduled-message": "Send",
    "add-rule": "Manage",
    "remove-rule": "Manage",
    "enumerate-rules": "Listen",
}


@pytest.mark.parametrize("operation", list(RIGHT_OF))
def test_each_operation_needs_its_right_each_time(operation: str) -> None:
    """A-9, T-12: 401 amqp:unauthorized-access before anything else is looked at."""
    others = {"Send", "Listen", "Manage"} - {RIGHT_OF[operation], "Manage"}

    async def test(bench: NodeBench) -> None:
        rule = AuthorizationRule("weak", frozenset(others), "k" * 44, "l" * 44)
        await bench.queue(QueueDescription("orders", authorization_rules=(rule,)))
        grant = bench.namespace.authorizer.grant_of_token(
            bench.token("sb://bus/orders", "weak", "k" * 44), "sb://bus/orders"
        )
        node = bench.node("orders", lambda _path: [grant])
        answer = await node.handle(request({"operation": f"com.microsoft:{operation}"}, {}))
        assert (status(answer), condition(answer)) == (401, "amqp:unauthorized-access")
        assert f"'{RIGHT_OF[operation]}' claim(s) are required" in sentence(answer)

    on_a_bench(test)


def test_the_table_of_rights_is_complete() -> None:
    """A-9: no operation without a right."""
    assert {name: right for name, (right, _) in OPERATIONS.items()} == RIGHT_OF


def test_an_expired_token_ends_management_too() -> None:
    """A-8: rights are checked with each request, not when the link was attached."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        node = bench.node("orders")
        asked = request({"operation": "com.microsoft:peek-message"}, EVERYTHING)
        assert status(await node.handle(asked)) == 204
        bench.clock.advance(601)
        assert status(await node.handle(asked)) == 401

    on_a_bench(test)


# -- requests that make no sense


def test_an_unknown_operation_is_not_implemented() -> None:
    """ERR-19, ERR-44: 501 amqp:not-implemented."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        for name in ("com.microsoft:dance", "peek-message", ""):
            answer = await bench.node("orders").handle(request({"operation": name}, {}))
            assert (status(answer), condition(answer)) == (501, "amqp:not-implemented")

    on_a_bench(test)


@pytest.mark.parametrize("operation", ["add-rule", "remove-rule", "enumerate-rules"])
def test_a_queue_has_no_rules(operation: str) -> None:
    """ERR-6, T-11: rules belong to subscriptions."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        answer = await bench.ask("orders", operation, {"rule-name": "x", "top": Int(1), "skip": Int(0)})
        assert (status(answer), condition(answer)) == (400, "amqp:not-allowed")

    on_a_bench(test)


def test_a_deleted_queue_is_not_found() -> None:
    """E-86, ERR-1: the node outlives the queue, its answers do not pretend."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        node = bench.node("orders")
        await bench.namespace.delete("orders")
        answer = await node.handle(request({"operation": "com.microsoft:peek-message"}, EVERYTHING))
        assert (status(answer), condition(answer)) == (404, "amqp:not-found")

    on_a_bench(test)


FINE: dict[str, dict[str, object]] = {
    "peek-message": dict(EVERYTHING),
    "schedule-message": {"messages": [{"message": HELLO.encode(FAR_MS)}]},
    "cancel-scheduled-message": {"sequence-numbers": longs(1)},
    "receive-by-sequence-number": {"sequence-numbers": longs(1)},
    "renew-lock": {"lock-tokens": tokens(uuid4())},
    "update-disposition": {"lock-tokens": tokens(uuid4()), "disposition-status": "completed"},
    "batch-delete-messages": {"message-count": Int(1), "enqueued-time-utc": Timestamp(0)},
    "renew-session-lock": {"session-id": "s"},
    "get-session-state": {"session-id": "s"},
    "set-session-state": {"session-id": "s"},
    "get-message-sessions": {"last-updated-time": Timestamp(0), "skip": Int(0), "top": Int(1)},
}
BROKEN_VALUES: list[object] = [
    None,
    True,
    1.5,
    {"a": [1]},
    [],
    Array([], 0x98),
    [None],
    ["x"],
    [[[]]],
    [{"message": b"\x00"}],
    [{"message": "text"}],
    Symbol("odd"),
    Timestamp(1),
    Long(-1),
    Long((1 << 63) - 1),
    b"bytes",
    Array([Long(1)] * 6_000, 0x81),
]


@pytest.mark.parametrize("operation", list(FINE))
def test_broken_bodies_get_an_argument_error_that_names_the_key(operation: str) -> None:
    """ERR-7, ERR-8: any value under any key is answered; a missing or misplaced one with 400 and its name."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        for key in FINE[operation]:
            missing = await bench.ask(
                "orders", operation, {k: v for k, v in FINE[operation].items() if k != key}
            )
            assert (status(missing), condition(missing)) == (400, "com.microsoft:argument-error")
            assert f"'{key}'" in sentence(missing)
            for value in BROKEN_VALUES:
                answer = await bench.ask("orders", operation, {**FINE[operation], key: value})
                assert status(answer) < 500, (key, value, sentence(answer))
        for body in (b"x", "x", [1], 7):
            answer = await bench.ask("orders", operation, body)
            assert (status(answer), condition(answer)) == (400, "com.microsoft:argument-error")

    on_a_bench(test)


def test_a_request_without_operation_is_an_argument_error() -> None:
    """ERR-7: the sentence says what is missing."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        answer = await bench.node("orders").handle(request({"type": "entity-mgmt"}, {}))
        assert (status(answer), condition(answer)) == (400, "com.microsoft:argument-error")
        assert "'operation'" in sentence(answer)

    on_a_bench(test)


def test_the_associated_link_is_kept_alive() -> None:
    """R-22: a management request counts as use of the link it names."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        await bench.ask("orders", "peek-message", EVERYTHING, link_name="my-link")
        assert bench.links.touched == ["my-link"]

    on_a_bench(test)


def test_the_transfer_dead_letter_queue_answers_as_an_empty_one() -> None:
    """E-8, D-22, R-64, ERR-6, ERR-11, ERR-14: nothing to peek, to fetch or to settle, and no way in."""

    async def test(bench: NodeBench) -> None:
        await bench.queue("orders")
        path = "orders/$Transfer/$DeadLetterQueue"
        before: dict[str, object] = {"message-count": Int(1), "enqueued-time-utc": Timestamp(FAR_MS)}
        fetch: dict[str, object] = {"sequence-numbers": longs(1), "receiver-settle-mode": Int(1)}
        assert status(await bench.ask(path, "peek-message", EVERYTHING)) == 204
        assert status(await bench.ask(path, "batch-delete-messages", before)) == 204
        assert status(await bench.ask(path, "receive-by-sequence-number", fetch)) == 404
        assert status(await bench.ask(path, "renew-lock", {"lock-tokens": tokens(uuid4())})) == 410
        refused = await bench.ask(path, "schedule-message", {"messages": []})
        assert (status(refused), condition(refused)) == (400, "amqp:not-allowed")
        missing = await bench.ask("other/$Transfer/$DeadLetterQueue", "peek-message", EVERYTHING)
        assert status(missing) == 404

    on_a_bench(test)
