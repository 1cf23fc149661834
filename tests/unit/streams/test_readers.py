"""Who reads a partition."""

from __future__ import annotations

import pytest

from busway.model.errors import EntityNotFound, ReceiverStolen, TooManyReaders
from busway.streams.cursor import Readers
from tests.unit.streams.rig import Recorder


def sentence(reader: Recorder) -> str:
    (error,) = reader.evicted_with
    assert type(error) is ReceiverStolen
    return error.sentence


def test_a_group_has_five_readers_without_epochs() -> None:
    """H-23: the sixth is refused in known words; another group has its own five."""
    readers = Readers(5)
    five = [Recorder() for _ in range(5)]
    for reader in five:
        readers.add("$Default", reader)
    with pytest.raises(TooManyReaders) as caught:
        readers.add("$default", Recorder())
    assert caught.value.sentence == (
        "Exceeded the maximum number of allowed receivers per partition in a consumer group which is 5."
    )
    readers.add("other", Recorder())
    readers.remove("$DEFAULT", five[0])
    readers.add("$Default", Recorder())
    assert len(readers.of_group("$Default")) == 5
    assert all(reader.evicted_with == [] for reader in five)


def test_a_higher_or_equal_epoch_takes_over() -> None:
    """H-24: the reader before is evicted in known words."""
    readers = Readers(5)
    first = Recorder(name="a", epoch=1)
    second = Recorder(name="b", epoch=1)
    third = Recorder(epoch=7)
    for reader in (first, second, third):
        readers.add("g", reader)
    assert sentence(first) == (
        "New receiver 'b' with higher epoch of '1' is created hence current receiver 'a' with epoch '1' is getting"
        " disconnected. If you are recreating the receiver, make sure a higher epoch is used."
    )
    assert "New receiver 'nil' with higher epoch of '7'" in sentence(second)
    assert readers.of_group("g") == [third]
    assert third.evicted_with == []


def test_a_lower_epoch_is_refused() -> None:
    """H-24: and changes nothing."""
    readers = Readers(5)
    present = Recorder(name="a", epoch=3)
    readers.add("g", present)
    with pytest.raises(ReceiverStolen) as caught:
        readers.add("g", Recorder(epoch=2))
    assert caught.value.sentence.startswith(
        "Receiver 'a' with a higher epoch '3' already exists. Receiver 'nil' with epoch 2 cannot be created."
    )
    assert readers.of_group("g") == [present]
    assert present.evicted_with == []


def test_beside_an_epoch_there_is_no_reader_without() -> None:
    """H-25: it is refused in known words, and comes when the other has left."""
    readers = Readers(5)
    present = Recorder(epoch=0)
    readers.add("g", present)
    with pytest.raises(ReceiverStolen) as caught:
        readers.add("g", Recorder())
    assert caught.value.sentence.startswith(
        "At least one receiver for the endpoint is created with epoch of '0', and so non-epoch receiver is not"
        " allowed."
    )
    readers.remove("g", present)
    readers.remove("g", present)
    readers.add("g", Recorder())


def test_an_epoch_disconnects_those_without() -> None:
    """H-25: all of them."""
    readers = Readers(5)
    plain = [Recorder(name=str(index)) for index in range(3)]
    for reader in plain:
        readers.add("g", reader)
    with_epoch = Recorder(epoch=0)
    readers.add("g", with_epoch)
    for reader in plain:
        assert f"current receiver '{reader.name}' with epoch '-1' is getting disconnected" in sentence(reader)
    assert readers.all() == [with_epoch]


def test_a_name_comes_back_bounded() -> None:
    """H-24: clients choose it."""
    readers = Readers(5)
    old = Recorder(name="x" * 10_000 + "\n", epoch=1)
    readers.add("g", old)
    readers.add("g", Recorder(epoch=1))
    assert len(sentence(old)) < 800
    assert "\n" not in sentence(old)


def test_a_group_that_goes_takes_its_readers_along() -> None:
    """H-5: and only its own."""
    readers = Readers(5)
    mine, other = Recorder(), Recorder()
    readers.add("mine", mine)
    readers.add("other", other)
    readers.evict_group("MINE", EntityNotFound())
    assert [type(error) for error in mine.evicted_with] == [EntityNotFound]
    assert readers.all() == [other]
