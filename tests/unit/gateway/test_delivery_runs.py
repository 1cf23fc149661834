"""Usual messages in runs are what they are one by one: the same bytes to a message, the same message to bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway.amqp.decode import DecodeError
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.link import Link
from busway.amqp.performatives import Disposition, Header, Properties, Transfer
from busway.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, encode_message
from busway.amqp.types import Described, Symbol, Timestamp, ULong
from busway.gateway.amqp.delivery_runs import DeliveryWriter, UsualMessages
from busway.gateway.amqp.message_mapping import delivery_payload, message_of
from busway.message.message import Head, Message, read_head
from busway.model.descriptions import QueueDescription
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from tests.harness.engine_pair import EnginePair
from tests.harness.examples import examples_of
from tests.harness.frame_factory import make_frame
from tests.harness.real_transfers import mutated, whole_payloads
from tests.unit.gateway.amqp_peer import Room, in_room
from tests.unit.gateway.attacker import Attacker

USUAL = Limits()
#: Each of the limits that a message can break is near.
NARROW = Limits(property_bytes_max=120, header_bytes_max=150, key_characters_max=100)
TINY = Limits(property_bytes_max=20, header_bytes_max=30, key_characters_max=5)
FIELDS = (
    "head", "bare", "ttl_ms", "message_id", "session_id", "partition_key", "scheduled_at_ms", "sequence_number",
    "enqueued_at_ms", "expires_at_ms", "delivery_count", "changes", "state",
)  # fmt: skip


def fields_of(message: Message) -> dict[str, object]:
    return {name: getattr(message, name) for name in FIELDS}


def cut_alone(payload: bytes, wants_message_id: bool, limits: Limits) -> dict[str, object] | str:
    """What comes of a payload by itself: a message, or a refusal in words."""
    try:
        return fields_of(message_of(payload, wants_message_id, limits))
    except (DecodeError, BrokerError) as error:
        return f"{type(error).__name__}: {error}"


def cut_whole(payload: bytes, wants_message_id: bool, limits: Limits) -> dict[str, object] | str:
    """The same as part of a batch."""
    try:
        return fields_of(UsualMessages(b"", wants_message_id, limits).of_payload(payload))
    except (DecodeError, BrokerError) as error:
        return f"{type(error).__name__}: {error}"


def cut_in_place(
    payload: bytes, wants_message_id: bool, limits: Limits, before: bytes = b"", behind: bytes = b""
) -> dict[str, object] | None:
    """The same in the midst of a read; None: not as usual."""
    usual = UsualMessages(before + payload + behind, wants_message_id, limits)
    made = usual.message(len(before), len(before) + len(payload))
    return None if made is None else fields_of(made)


def agree(payload: bytes, chance: random.Random, limits: Limits) -> bool:
    """Whatever the run makes of a payload is what it is by itself. True when it was usual."""
    wants_message_id = chance.random() < 0.3
    before = bytes(chance.choices(b"\x00\x53\x70\xa0\xff", k=chance.randint(0, 5)))
    behind = bytes(chance.choices(b"\x00\x53\x75\xa0\x40", k=chance.randint(0, 9)))
    first = cut_in_place(payload, wants_message_id, limits, before, behind)
    alone = cut_alone(payload, wants_message_id, limits)
    again = cut_in_place(payload, wants_message_id, limits, before, behind)
    assert first is None or first == alone
    assert again is None or again == alone
    assert cut_whole(payload, wants_message_id, limits) == alone
    return again is not None


# -- in


def test_messages_of_every_client_library_are_usual_from_the_second_time_on() -> None:
    """Speed: whatever they put before the bare message, unless it is long or out of order or has several parts."""
    usual = [payload for payload in whole_payloads() if agree(payload, random.Random(1), USUAL)]
    assert len(usual) > 0.8 * len(whole_payloads()) > 100


def test_a_message_with_session_and_partition_key_is_usual() -> None:
    """X-1, P-3: what the broker reads of it is found in place."""
    message = AmqpMessage(
        [b"body"],
        DATA,
        header=Header(ttl=5_000),
        message_annotations={"x-opt-partition-key": "k", "x-opt-scheduled-enqueue-time": Timestamp(99)},
        properties=Properties(message_id="id", group_id="s"),
        application_properties={"color": "red"},
    )
    payload = encode_message(message)
    message_of(payload, True)
    made = cut_in_place(payload, True, USUAL, b"before", b"behind")
    assert made is not None
    assert (made["message_id"], made["session_id"], made["partition_key"]) == ("id", "s", "k")
    assert (made["ttl_ms"], made["scheduled_at_ms"]) == (5_000, 99)
    assert made == cut_alone(payload, True, USUAL)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limits", [USUAL, NARROW, TINY], ids=["usual", "narrow", "tiny"])
def test_mutants_of_real_messages_are_cut_the_same_in_a_run(seed: int, limits: Limits) -> None:
    """Attack: bytes changed anywhere; the run makes the same message of them, or leaves the verdict to others."""
    chance = random.Random(seed)
    payloads = [payload for payload in whole_payloads() if len(payload) < 2_000]
    usual = 0
    for _ in range(examples_of(1_500)):
        payload = chance.choice(payloads)
        usual += agree(mutated(chance, payload), chance, limits)
    assert usual > 0


PROPERTIES = b"\x00\x53\x73\xc0\x04\x01\xa1\x01i"
#: Each nearly a usual message.
NEARLY_USUAL = {
    "properties with more fields than bytes": b"\x00\x53\x73\xc0\x04\x09\xa1\x01i" + b"\x00\x53\x75\xa0\x01b",
    "properties without a count": b"\x00\x53\x73\xc0\x00" + b"\x00\x53\x75\xa0\x01b",
    "wide properties without a count": b"\x00\x53\x73\xd0\x00\x00\x00\x00" + b"\x00\x53\x75\xa0\x01b",
    "a body of two kinds": PROPERTIES + b"\x00\x53\x75\xa0\x01b" + b"\x00\x53\x77\xa1\x01b",
    "a body of two other kinds": PROPERTIES + b"\x00\x53\x75\xa0\x01b" + b"\x00\x53\x76\x45",
    "two bodies": PROPERTIES + b"\x00\x53\x75\xa0\x01b" * 2,
    "the header twice": b"\x00\x53\x70\x45" * 2 + PROPERTIES + b"\x00\x53\x75\xa0\x01b",
    "properties behind the body": b"\x00\x53\x75\xa0\x01b" + PROPERTIES,
    "an unknown section": PROPERTIES + b"\x00\x53\x79\x45",
    "a map where a list belongs": b"\x00\x53\x73\xc1\x01\x00" + b"\x00\x53\x75\xa0\x01b",
    "a body that goes on behind its end": PROPERTIES + b"\x00\x53\x75\xa0\x09b",
    "a wide body that goes on behind its end": PROPERTIES + b"\x00\x53\x75\xb0\x00\x00\x00\x02b",
    "a body without its size": PROPERTIES + b"\x00\x53\x75\xa0",
    "a wide body without all of its size": PROPERTIES + b"\x00\x53\x75\xb0\x00\x00",
    "a section without a value": PROPERTIES + b"\x00\x53\x75",
    "application properties that say nothing": PROPERTIES + b"\x00\x53\x74\xc1\x02\x02\xa1",
    "application properties with a list": PROPERTIES + b"\x00\x53\x74\xc1\x05\x02\xa1\x01k\x45",
    "an id that is no id": b"\x00\x53\x73\xc0\x02\x01\x41" + b"\x00\x53\x75\xa0\x01b",
    "nothing": b"",
}


@pytest.mark.parametrize("name", NEARLY_USUAL)
def test_what_is_nearly_a_usual_message_is_cut_the_same_in_a_run(name: str) -> None:
    """M-34, S-2: refused in the same words, or taken in the same form."""
    for seed in range(20):
        for limits in (USUAL, NARROW, TINY):
            agree(NEARLY_USUAL[name], random.Random(seed), limits)


texts = st.text(max_size=12)
annotations = st.dictionaries(
    st.sampled_from(
        ["x-opt-partition-key", "x-opt-via-partition-key", "x-opt-sequence-number", "mine", "other"]
    ),
    st.one_of(texts, st.integers(0, 9).map(ULong), st.binary(max_size=4), st.none()),
    max_size=3,
)
properties = st.builds(
    Properties,
    message_id=st.one_of(st.none(), texts, st.uuids(), st.binary(max_size=5), st.integers(0, 300).map(ULong)),
    subject=st.one_of(st.none(), texts),
    group_id=st.one_of(st.none(), texts),
    reply_to_group_id=st.one_of(st.none(), texts),
)
bodies = st.one_of(
    st.tuples(st.lists(st.binary(max_size=300), min_size=1, max_size=2), st.just(DATA)),
    st.tuples(st.none(), st.sampled_from([DATA, 0])),
    st.tuples(st.lists(st.lists(texts, max_size=2), min_size=1, max_size=2), st.just(SEQUENCE)),
    st.tuples(
        st.one_of(
            texts, st.none(), st.booleans(), st.floats(allow_nan=False), st.just(Described(Symbol("d"), 1))
        ),
        st.just(VALUE),
    ),
)
messages = st.builds(
    lambda body, **sections: AmqpMessage(*body, **sections),
    bodies,
    header=st.one_of(st.none(), st.builds(Header, durable=st.booleans(), ttl=st.integers(0, 2**32 - 1))),
    delivery_annotations=st.one_of(st.none(), annotations),
    message_annotations=st.one_of(st.none(), annotations),
    properties=st.one_of(st.none(), properties),
    application_properties=st.one_of(
        st.none(), st.dictionaries(texts, st.one_of(texts, st.booleans()), max_size=3)
    ),
    footer=st.one_of(st.none(), annotations),
)


@settings(max_examples=examples_of(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages, st.randoms(use_true_random=False), st.sampled_from([USUAL, NARROW, TINY]))
def test_any_message_is_cut_the_same_in_a_run(
    message: AmqpMessage, chance: random.Random, limits: Limits
) -> None:
    """L-6, L-7, L-8, M-1, M-27: every section present and absent, cut off, mutated; limits near and far."""
    payload = encode_message(message)
    agree(payload, chance, limits)
    agree(payload[: chance.randint(0, len(payload))], chance, limits)
    agree(mutated(chance, payload), chance, limits)


# -- out


def stored(payload: bytes, number: int) -> Message:
    message = message_of(payload, False)
    message.sequence_number = number
    message.enqueued_at_ms = 1_700_000_000_000 + number % 1_000
    return message


def with_hops(message: Message) -> Message:
    """As it is once it was forwarded."""
    sent, head = read_head(message.head), Head()
    head.flags, head.priority, head.hops, head.first_number = sent.flags, sent.priority, 2, 77
    head.delivery_annotations, head.message_annotations = sent.delivery_annotations, sent.message_annotations
    message.head = head.encoded()
    return message


def sent_once(message: Message) -> Message:
    message.delivery_count = 1
    return message


def changed(message: Message) -> Message:
    message.changes = b"\xc1\x07\x02\xa1\x01k\xa1\x01v"
    return message


def as_it_is(message: Message) -> Message:
    return message


def kinds() -> list[bytes]:
    """Messages whose fronts are equal, or differ in one thing."""
    annotations: list[dict[str, str] | None] = [None, {"x-opt-partition-key": "k"}, {"mine": "m" * 90}]
    return [
        encode_message(
            AmqpMessage(
                [b"x" * size], DATA, header=Header(durable=True, ttl=ttl), message_annotations=annotation
            )
        )
        for size in (5, 250, 400, 2_000)
        for ttl in (None, 5_000, 6_000)
        for annotation in annotations
    ]


deliveries = st.lists(
    st.tuples(
        st.sampled_from(kinds() + whole_payloads()[:40]),
        st.one_of(
            st.integers(1, 9), st.integers(1, 3).map(lambda index: index << 48), st.integers(0, 2**63 - 1)
        ),
        st.integers(0, 2**62),
        st.binary(min_size=16, max_size=16),
        st.sampled_from([as_it_is] * 5 + [sent_once, changed, with_hops]),
    ),
    max_size=12,
)


def books(pair: EnginePair, link: Link) -> tuple[object, ...]:
    session = link.session
    unsettled = [(key, one.tag) for key, one in session.books.unsettled.items()]
    numbers = session.next_delivery_id, session.next_outgoing_id, session.peer_window, session.held_bytes
    return pair.server.bytes_to_send(), unsettled, numbers, link.credit(), link.unsettled_count()


@settings(max_examples=examples_of(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(deliveries, st.booleans(), st.booleans(), st.sampled_from([512, 700, 65_536]))
def test_any_run_of_deliveries_is_written_as_single_ones_are(
    made: list[tuple[bytes, int, int, bytes, Callable[[Message], Message]]],
    deletes: bool,
    is_partitioned: bool,
    frame_bytes: int,
) -> None:
    """M-27a, M-27b, R-1: first deliveries and others, in one frame and in several: the same bytes and books."""
    ends: list[tuple[EnginePair, Link]] = []
    for _ in range(2):
        pair = EnginePair(client=EngineSettings(max_frame_size=frame_bytes)).opened()
        ends.append((pair, pair.receiver(session=pair.begin(), credit=50)[1]))
    (pair, alone), (other_pair, together) = ends
    run = DeliveryWriter(together, deletes, is_partitioned)
    for payload, number, locked_until_ms, tag, fate in made:
        message = fate(stored(payload, number))
        token = b"" if deletes else tag
        content = delivery_payload(message, token, locked_until_ms, is_partitioned)
        alone.send(tag, content, settled=deletes)
        assert run.write(message, tag, token, locked_until_ms) == len(content)
    run.close()
    run.close()
    assert books(other_pair, together) == books(pair, alone)


# -- the whole way


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("detects_duplicates", [False, True], ids=["plain", "duplicates"])
def test_a_queue_takes_and_refuses_the_same_in_runs(seed: int, detects_duplicates: bool) -> None:
    """S-2, S-4, M-1: outcomes with their words, order, ids that are given, what is stored in the end."""
    heard: list[tuple[object, ...]] = []
    limits = Limits(
        property_bytes_max=200, header_bytes_max=400, key_characters_max=40, message_bytes_max=900
    )

    async def scenario(room: Room) -> None:
        for takes_runs in (True, False):
            chance = random.Random(seed)
            client = Attacker(room, f"10.0.0.{int(takes_runs)}")
            name = f"q{int(takes_runs)}"
            client.sends_to(name)
            [link] = client.connection.carrier.engine.sessions[0].links.values()
            assert link.takes_runs
            link.takes_runs = takes_runs
            for delivery in range(0, 60, 6):
                payloads = [chance.choice(whole_payloads()) for _ in range(6)]
                frames = [
                    make_frame(
                        Transfer(0, delivery + number, b"t", 0, chance.random() < 0.2),
                        payload=mutated(chance, payload, 1),
                    )
                    for number, payload in enumerate(payloads)
                ]
                client.say(b"".join(frames))
                await room.turns(3)
            rows = [
                (message.head, message.message_id, message.session_id, message.partition_key, message.ttl_ms)
                for message in await room.namespace.queue(name).outlet(False).peek(0, 100)
            ]
            outcomes = [
                (one.first, one.last, type(one.state).__name__, _words(one.state))
                for one in client.heard(Disposition)
            ]
            heard.append((rows, outcomes, link.credit()))

    queues = [
        QueueDescription(name, requires_duplicate_detection=detects_duplicates) for name in ("q0", "q1")
    ]
    in_room(scenario, *queues, limits=limits)
    assert heard[0] == heard[1]
    assert heard[0][0]


def _words(state: object) -> object:
    """Of a refusal, without what is another one each time."""
    error = getattr(state, "error", None)
    return None if error is None else (error.condition, error.description.partition(" TrackingId")[0])
