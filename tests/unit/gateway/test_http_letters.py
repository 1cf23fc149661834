"""Dead letters back to work over HTTP: routes, rights, bodies of strangers, what comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest

from busway.amqp.encode import encode_value
from busway.gateway.http.bulk.letters_route import LETTERS_MAX
from tests.unit.gateway.http_exchange import HOST, VERSION, Exchange, queue_body, sas_token
from tests.unit.gateway.test_http_claims import KEY, rule

NOTHING = {"gone": [], "locked": [], "refused": [], "later": [], "unknown": []}


@pytest.fixture
def bus() -> Iterator[Exchange]:
    with Exchange() as exchange:
        for name, right in (("orders", "Listen"), ("other", "Send")):
            body = queue_body(rule(right))
            assert exchange.request("PUT", f"/{name}?{VERSION}", body).status == 201
        yield exchange


def bury(bus: Exchange, *bodies: str) -> None:
    """By a message's time that is over."""
    for body in bodies:
        assert bus.request("POST", "/orders/messages", body).status == 201
    from busway.model.settlement import Settlement, Verb
    from tests.unit.broker.namespace_bench import settle
    from tests.unit.broker.rig import Recorder

    async def dead_letter() -> None:
        fragment = bus.namespace.queue("orders").main
        receiver = Recorder(len(bodies))
        fragment.add_receiver(receiver)
        fragment.wake(receiver)
        await settle()
        tokens = [delivery.token for delivery in receiver.deliveries]
        fragment.settle(tokens, Settlement(Verb.DEAD_LETTER), lambda _: None)
        await settle()
        fragment.remove_receiver(receiver)

    bus.run(dead_letter())


def body_of(*letters: tuple[int, dict[str, object]]) -> bytes:
    parts = [(number, encode_value(changes) if changes else b"") for number, changes in letters]
    return b"".join(pack(">QI", number, len(changes)) + changes for number, changes in parts)


def move(bus: Exchange, *letters: tuple[int, dict[str, object]], into: str = "") -> Any:
    answer = bus.request("POST", f"/$deadletters/orders{into}", body_of(*letters))
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def test_letters_go_back_and_the_answer_names_what_did_not(bus: Exchange) -> None:
    """D-3: gone, refused; all others were moved."""
    bury(bus, "a", "b")
    refused: dict[str, object] = {"nonsense": 1}
    told = move(bus, (1, {}), (2, refused), (77, {}))
    assert told == {
        **NOTHING,
        "gone": [77],
        "refused": [[2, "There is no part 'nonsense' of a message."]],
    }
    counts = bus.namespace.queue("orders").counts()
    assert (counts.active, counts.dead_letter) == (1, 1)
    assert move(bus, (2, {}), into="?into=other") == NOTHING
    assert move(bus) == NOTHING


def test_it_asks_for_listen_on_the_source_and_send_on_the_destination(bus: Exchange) -> None:
    """A-6: by one token, or by one for each."""
    bury(bus, "a")
    listen = sas_token(f"https://{HOST}/orders", "Listen", KEY)
    send = sas_token(f"https://{HOST}/other", "Send", KEY)
    target = "/$deadletters/orders?into=other"
    assert bus.request("POST", target, body_of((1, {})), token=None).status == 401
    assert bus.request("POST", target, body_of((1, {})), token=send).status == 401
    assert bus.request("POST", target, body_of((1, {})), token=listen).status == 401
    assert bus.request("POST", "/$deadletters/orders", body_of((1, {})), token=listen).status == 401
    both = {"servicebussupplementaryauthorization": send}
    answer = bus.request("POST", target, body_of((1, {})), both, token=listen)
    assert (answer.status, json.loads(answer.text)) == (200, NOTHING)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\0" * 5, "ends within a letter"),
        (pack(">QI", 1, 9) + b"short", "ends within the changes"),
        (pack(">QI", 0, 0), "0 is no sequence number"),
        (body_of((1, {}), (1, {})), "twice"),
        (pack(">QI", 1, 0) * (LETTERS_MAX + 1), f"at most {LETTERS_MAX}"),
    ],
)
def test_bodies_of_strangers_are_refused_with_a_sentence(bus: Exchange, body: bytes, words: str) -> None:
    """Attack: cut off, doubled, too many."""
    answer = bus.request("POST", "/$deadletters/orders", body)
    assert answer.status == 400
    assert words in answer.detail


def test_only_an_entity_with_dead_letters_has_them(bus: Exchange) -> None:
    """E-9: nothing below a dead-letter queue, no topic, nowhere to send that is not there."""
    assert bus.request("POST", "/$deadletters/orders/$DeadLetterQueue").status == 404
    assert bus.request("POST", "/$deadletters/missing").status == 404
    assert bus.request("POST", "/$deadletters/orders?into=missing").status == 404
    assert bus.request("GET", "/$deadletters/orders").status == 405
