"""A topic's rules are its subscriptions' too: what becomes of links and tokens when they change."""

from __future__ import annotations

from dataclasses import replace

from busway.model.descriptions import (
    LISTEN,
    AuthorizationRule,
    NewEntity,
    SubscriptionDescription,
    TopicDescription,
)
from tests.unit.gateway.amqp_peer import Room, in_room

TOPIC, PATH = "t", "t/Subscriptions/s"
LISTENER = AuthorizationRule("listener", frozenset({LISTEN}), "first-key", "second-key")
UNAUTHORISED = "amqp:unauthorized-access"


async def create(room: Room) -> TopicDescription:
    topic = TopicDescription(TOPIC, authorization_rules=(LISTENER,))
    made = await room.namespace.create([NewEntity(topic), NewEntity(SubscriptionDescription(PATH))])
    assert isinstance(made[0], TopicDescription)
    return made[0]


def test_a_missing_subscription_is_told_to_whoever_knows_the_topics_key() -> None:
    """A-7, S-10, E-61: the rule stands on the topic, which exists: 404; without its key 401."""

    async def test(room: Room) -> None:
        await create(room)
        peer = await room.stranger()
        path = f"sb://localhost/{TOPIC}/Subscriptions/none"
        assert await peer.put_token(path, rule="listener", key="first-key") == 404
        assert await peer.put_token(path, rule="listener", key="wrong-key") == 401
        assert await peer.put_token("sb://localhost/none", rule="listener", key="first-key") == 401

    in_room(test)


def test_a_rotated_key_of_a_topic_ends_the_links_of_its_subscriptions() -> None:
    """A-10, A-2: whether the token was shown for the topic or for the subscription; the other key goes on."""

    async def test(room: Room) -> None:
        topic = await create(room)
        peers = [await room.stranger() for _ in range(3)]
        shown = ((TOPIC, "first-key"), (PATH, "first-key"), (PATH, "second-key"))
        links = []
        for peer, (path, key) in zip(peers, shown, strict=True):
            assert await peer.put_token(f"sb://localhost/{path}", rule="listener", key=key) == 202
            links.append(await peer.receiver(PATH))
        found = [peer.refusal(link) for peer, link in zip(peers, links, strict=True)]
        assert found == [None, None, None]
        rotated = replace(LISTENER, primary_key="third-key")
        await room.namespace.update(replace(topic, authorization_rules=(rotated,)))
        await room.turns()
        ended = [peer.refusal(link) for peer, link in zip(peers, links, strict=True)]
        assert [None if refusal is None else refusal[0] for refusal in ended] == [
            UNAUTHORISED,
            UNAUTHORISED,
            None,
        ]

    in_room(test)


def test_a_token_does_not_outlive_its_topic() -> None:
    """E-86: a topic of the same name with the same rule is another one."""

    async def test(room: Room) -> None:
        await create(room)
        peer = await room.stranger()
        assert await peer.put_token(f"sb://localhost/{PATH}", rule="listener", key="first-key") == 202
        await room.namespace.delete(TOPIC)
        await create(room)
        link = await peer.receiver(PATH)
        assert (peer.refusal(link) or ("",))[0] == UNAUTHORISED
        assert await peer.put_token(f"sb://localhost/{PATH}", rule="listener", key="first-key") == 202
        assert peer.refusal(await peer.receiver(PATH)) is None

    in_room(test)
