"""A hub of several partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.broker.fragment.locks import Attachment
from busway.model.errors import (
    ArgumentOutOfRange,
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    EntityUpdated,
    PublisherRevoked,
    ServerBusy,
)
from busway.streams.key_hash import partition_of_key
from tests.unit.streams.rig import GROUP, HubRig, Recorder, Told, event, play


class Link(Attachment):
    def __init__(self) -> None:
        self.evicted_with: list[type[BrokerError]] = []

    def evict(self, error: BrokerError) -> None:
        self.evicted_with.append(type(error))


def lasts(rig: HubRig) -> list[int]:
    return [log.info().last_number for log in rig.hub.logs()]


async def publish(rig: HubRig, *texts: str) -> Told:
    told = Told()
    rig.hub.publish([event(text) for text in texts], told)
    await rig.calm()
    return told


def test_partitions_have_the_ids_zero_to_n() -> None:
    """H-4, H-12: any other text is out of range."""

    async def scenario(rig: HubRig) -> None:
        assert rig.hub.partition_ids() == ["0", "1", "2"]
        assert [rig.hub.partition(name).index for name in rig.hub.partition_ids()] == [0, 1, 2]
        for name in ("3", "-1", "", "00", "+1", "1 ", "٣", "x" * 1000, "9" * 5000):
            with pytest.raises(ArgumentOutOfRange) as caught:
                rig.hub.partition(name)
            assert caught.value.sentence == (
                "The specified partition is invalid for an EventHub partition sender or receiver."
                " It should be between 0 and 2."
            )

    play(scenario, partitions=3)


def test_events_without_a_key_go_round() -> None:
    """H-11, H-17: those of one publication stay together."""

    async def scenario(rig: HubRig) -> None:
        for _ in range(4):
            assert (await publish(rig, "a", "b")).error is None
        assert lasts(rig) == [3, 1, 1]

    play(scenario, partitions=3)


def test_a_partition_that_is_away_is_skipped() -> None:
    """H-11: keyless events go elsewhere, nobody notices."""

    async def scenario(rig: HubRig) -> None:
        rig.hub.lose_partition(1, ServerBusy())
        for _ in range(6):
            assert (await publish(rig, "a")).error is None
        assert lasts(rig) == [2, 2]
        with pytest.raises(ServerBusy):
            rig.hub.partition("1")
        rig.hub.regain_partition(1, await rig.new_log(1))
        for _ in range(3):
            await publish(rig, "a")
        assert sum(lasts(rig)) == 6

    play(scenario, partitions=3, stores=3)


def test_a_full_or_slow_store_is_passed_by() -> None:
    """H-11: as long as there is another."""

    async def scenario(rig: HubRig) -> None:
        rig.stores[0].accepts_new_payload = False
        for _ in range(4):
            assert (await publish(rig, "a")).error is None
        assert lasts(rig) == [-1, 3]
        rig.stores[1].accepts_new_payload = False
        assert (await publish(rig, "a")).error is not None
        rig.stores[0].accepts_new_payload = rig.stores[1].accepts_new_payload = True
        rig.stores[1].hold_commits()
        stuck = Told()
        rig.hub.partition("1").append([event("stuck")], stuck)
        await rig.calm()
        for _ in range(3):
            assert (await publish(rig, "b")).error is None
        assert lasts(rig) == [2, 3]
        rig.stores[1].release_commits()

    play(scenario, partitions=2, stores=2)


def test_without_any_partition_the_hub_is_busy() -> None:
    """H-11: when all stores are away."""

    async def scenario(rig: HubRig) -> None:
        for index in range(2):
            rig.hub.lose_partition(index, ServerBusy())
        assert isinstance((await publish(rig, "a")).error, ServerBusy)

    play(scenario, partitions=2)


def test_a_key_has_one_partition() -> None:
    """H-10, H-12: in order, or not at all."""

    async def scenario(rig: HubRig) -> None:
        index = partition_of_key("k", 4)
        for text in ("a", "b"):
            told = Told()
            rig.hub.publish_keyed("k", [event(text, "k")], told)
            await rig.calm()
            assert told.error is None
        assert lasts(rig)[index] == 1
        rig.hub.lose_partition(index, ServerBusy())
        told = Told()
        rig.hub.publish_keyed("k", [event("c", "k")], told)
        assert isinstance(told.error, ServerBusy)

    play(scenario, partitions=4)


def test_a_revoked_publisher_may_not_send() -> None:
    """H-13: whatever the case of its name."""

    async def scenario(rig: HubRig) -> None:
        rig.hub.check_publisher("device-2")
        with pytest.raises(PublisherRevoked):
            rig.hub.check_publisher("Device-1")

    play(scenario, revoked_publishers=("device-1",))


def test_groups_are_known_by_name() -> None:
    """H-5: and their readers leave with them."""

    async def scenario(rig: HubRig) -> None:
        assert rig.hub.has_group("$default")
        assert not rig.hub.has_group("third")
        rig.hub.add_group("Third")
        assert rig.hub.has_group("third")
        mine, other = rig.reader(), rig.reader()
        rig.hub.partition("0").readers.add("third", mine)
        rig.hub.partition("0").readers.add(GROUP, other)
        rig.hub.attach(mine, sends=False)
        rig.hub.remove_group("third", EntityNotFound())
        assert not rig.hub.has_group("third")
        assert [type(error) for error in mine.evicted_with] == [EntityNotFound]
        assert other.evicted_with == []
        rig.hub.close(EntityNotFound())
        assert len(mine.evicted_with) == 1

    play(scenario)


def test_a_hub_that_is_gone_evicts_everybody_once() -> None:
    """H-2: senders and readers."""

    async def scenario(rig: HubRig) -> None:
        sender, reader, log = Link(), rig.reader(), rig.log
        rig.hub.attach(sender, sends=True)
        rig.hub.attach(reader, sends=False)
        rig.hub.partition("0").readers.add(GROUP, reader)
        gone = Link()
        rig.hub.attach(gone, sends=True)
        rig.hub.detach(gone)
        rig.hub.close(EntityNotFound())
        assert sender.evicted_with == [EntityNotFound]
        assert [type(error) for error in reader.evicted_with] == [EntityNotFound]
        assert gone.evicted_with == []
        assert log.is_closed

    play(scenario)


def test_a_lost_partition_evicts_its_readers_only() -> None:
    """H-12: a store that fails takes only its own down."""

    async def scenario(rig: HubRig) -> None:
        sender, mine, other = Link(), Recorder(10), Recorder(10)
        mine.cursor = rig.hub.partition("0").cursor(0, mine)
        other.cursor = rig.hub.partition("1").cursor(0, other)
        for reader, partition in ((mine, "0"), (other, "1")):
            rig.hub.attach(reader, sends=False)
            rig.hub.partition(partition).readers.add(GROUP, reader)
        rig.hub.attach(sender, sends=True)
        rig.hub.lose_partition(0, ServerBusy())
        rig.hub.lose_partition(0, ServerBusy())
        assert [type(error) for error in mine.evicted_with] == [ServerBusy]
        assert other.evicted_with == []
        assert sender.evicted_with == []

    play(scenario, partitions=2)


def test_a_changed_hub_is_attached_to_again() -> None:
    """H-21: entity-updated; what has not changed evicts nobody."""

    async def scenario(rig: HubRig) -> None:
        sender, reader = Link(), rig.reader()
        rig.hub.attach(sender, sends=True)
        rig.hub.attach(reader, sends=False)
        rig.hub.partition("0").readers.add(GROUP, reader)
        rig.hub.replace_description(rig.description)
        assert sender.evicted_with == []
        rig.hub.replace_description(replace(rig.description, user_metadata="new"))
        assert sender.evicted_with == [EntityUpdated]
        assert [type(error) for error in reader.evicted_with] == [EntityUpdated]

    play(scenario)


@pytest.mark.parametrize("status", ["Disabled", "SendDisabled", "ReceiveDisabled"])
def test_a_disabled_hub_lets_nobody_in(status: str) -> None:
    """H-2: those whom the status forbids hear why."""

    async def scenario(rig: HubRig) -> None:
        sender, reader = Link(), rig.reader()
        rig.hub.attach(sender, sends=True)
        rig.hub.attach(reader, sends=False)
        rig.hub.replace_description(replace(rig.description, status=status))
        refused = {"Disabled": (True, True), "SendDisabled": (True, False), "ReceiveDisabled": (False, True)}
        refuses_send, refuses_read = refused[status]
        assert sender.evicted_with == [EntityDisabled if refuses_send else EntityUpdated]
        assert type(reader.evicted_with[0]) is (EntityDisabled if refuses_read else EntityUpdated)
        for sends, refuses in ((True, refuses_send), (False, refuses_read)):
            if refuses:
                with pytest.raises(EntityDisabled):
                    rig.hub.attach(Link(), sends=sends)
            else:
                rig.hub.attach(Link(), sends=sends)
        assert isinstance(await rig.append("a"), EntityDisabled) is refuses_send

    play(scenario)


def test_partitions_may_become_more() -> None:
    """H-3: also one whose store is away."""

    async def scenario(rig: HubRig) -> None:
        rig.hub.add_partition(None)
        assert rig.hub.partition_ids() == ["0", "1"]
        with pytest.raises(ServerBusy):
            rig.hub.partition("1")

    play(scenario)


def test_keys_are_spread_anew_when_there_are_more_partitions() -> None:
    """H-3, H-10: whatever was known of a key before; and many keys, or long ones, are not all remembered."""

    async def scenario(rig: HubRig) -> None:
        keys = [*(f"key-{number}" for number in range(2_000)), "k" * 10_000]
        for count in range(1, 4):
            assert rig.hub.partition_count == count
            for _ in range(2):
                assert [rig.hub.index_of_key(key) for key in keys] == [
                    partition_of_key(key, count) for key in keys
                ]
            rig.hub.add_partition(None)

    play(scenario)
