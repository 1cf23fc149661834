"""Entities made for a link, as earlier versions wrote them down: by words in their metadata."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from busway.broker.namespace.namespace import Namespace
from busway.model.descriptions import (
    LINK_WORDS,
    Description,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    description_json,
    description_of_json,
)
from tests.upgrade.old_store import CATALOGUES, on_an_old_store

TOPIC = "orders"
SUBSCRIBER = "orders/Subscriptions/audit"
ADMINISTRATORS = "orders/Subscriptions/busway-capture"


def old_catalogue() -> str:
    """The rows of the last version that had nothing but words, with its words for a topic and a subscriber of JMS."""
    lines = (CATALOGUES / "capture_in_words.sql").read_text().split("\n")
    words = {
        f"'topic:{TOPIC}'": "Made for a link of a client, and goes with it",
        f"'subscription:{SUBSCRIBER.lower()}'": "Made for a subscriber of JMS",
    }
    for index, line in enumerate(lines):
        for key, said in words.items():
            if key in line:
                lines[index] = line.replace('"UserMetadata":null', f'"UserMetadata":"{said}"')
    return "\n".join(lines)


def made(namespace: Namespace, path: str) -> bool:
    return namespace.description(path).made_for_a_link


def test_what_an_earlier_version_made_for_a_link_is_known_again_and_stays_so(tmp_path: Path) -> None:
    """E-65 E-110: words of its row mean the property, which then stays when the words go."""

    async def rewrite(namespace: Namespace) -> None:
        assert [made(namespace, path) for path in (TOPIC, SUBSCRIBER, ADMINISTRATORS)] == [True, True, False]
        await namespace.update(SubscriptionDescription(SUBSCRIBER, user_metadata="ours"))
        await namespace.update(TopicDescription(TOPIC))

    async def look(namespace: Namespace) -> None:
        assert [made(namespace, path) for path in (TOPIC, SUBSCRIBER, ADMINISTRATORS)] == [True, True, False]
        assert namespace.description(SUBSCRIBER).user_metadata == "ours"

    on_an_old_store(tmp_path, old_catalogue(), rewrite, look)


def test_the_words_of_a_client_mean_nothing_over_a_start(tmp_path: Path) -> None:
    """E-36: written at creation or later; a row of this version says itself what was made for a link."""
    queue = QueueDescription("q", user_metadata=LINK_WORDS[QueueDescription])

    async def write(namespace: Namespace) -> None:
        await namespace.create([NewEntity(queue)])
        words = LINK_WORDS[SubscriptionDescription]
        await namespace.update(SubscriptionDescription(ADMINISTRATORS, user_metadata=words))

    async def look(namespace: Namespace) -> None:
        assert not made(namespace, "q")
        assert not made(namespace, ADMINISTRATORS)

    on_an_old_store(tmp_path, old_catalogue(), write, look, look)


@pytest.mark.parametrize(
    "plain",
    [QueueDescription("q"), TopicDescription("t"), SubscriptionDescription("t/Subscriptions/s")],
    ids=lambda plain: type(plain).__name__,
)
def test_the_row_of_an_ordinary_entity_is_as_it_was(plain: Description) -> None:
    """E-44: only what was made for a link, or says so, has the key; earlier versions pass over it."""
    assert "MadeForALink" not in description_json(plain)
    words = LINK_WORDS[type(plain)]
    for is_made, said in ((True, words), (True, None), (False, words)):
        entity = replace(plain, made_for_a_link=is_made, user_metadata=said)
        written = json.loads(json.dumps(description_json(entity)))
        assert written["MadeForALink"] is is_made
        assert description_of_json(type(plain), written) == entity
