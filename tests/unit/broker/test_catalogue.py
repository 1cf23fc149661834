"""The catalogue's rows and how they are read."""

import asyncio
import json
from dataclasses import replace

import pytest

from busway.broker.namespace.catalogue_rows import EntityRow, NamespaceRow, Share, StoreRow, store_rows
from busway.broker.namespace.stores import public_url
from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription
from busway.store.contract import FragmentKey, StoreError, StoreTooNew
from tests.unit.broker.namespace_bench import NamespaceBench, on_a_bench, settle

_RULE = AuthorizationRule("r", frozenset({"Send"}), "first", "second", 1, 2)
_QUEUE = EntityRow(
    "orders",
    QueueDescription("Orders", user_metadata="m", authorization_rules=(_RULE,), created_at_ms=3),
    (Share("store-2", FragmentKey(7), FragmentKey(8)),),
    False,
    41,
)


def test_rows_come_back_from_their_text() -> None:
    """E-44: what was written is what is read."""
    assert EntityRow.parse("queue:orders", _QUEUE.text(None)) == _QUEUE
    row = NamespaceRow("id", "bus", (_RULE,), 5)
    assert NamespaceRow.parse(row.text(None)) == row
    stores = [StoreRow("b", "sqlite:b", 0), StoreRow("a", "sqlite:a", 1, is_disabled=True)]
    assert store_rows({row.key: row.text(None) for row in stores}) == stores


def test_keys_of_a_newer_version_are_kept_when_a_row_is_written_again() -> None:
    """E-44: an older server that updates a queue does not lose what a newer one wrote."""
    data = json.loads(_QUEUE.text(None))
    data["later"] = {"x": 1}
    data["description"]["MaxColour"] = "blue"
    changed = replace(
        _QUEUE, description=replace(_QUEUE.description, user_metadata=None, max_delivery_count=2)
    )
    again = json.loads(changed.text(json.dumps(data)))
    assert again["later"] == {"x": 1}
    assert again["description"]["MaxColour"] == "blue"
    assert EntityRow.parse("queue:orders", json.dumps(again)) == changed


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format":"1"}', '{"format":1}', "null"])
def test_a_row_that_cannot_be_read_is_named(text: str) -> None:
    """E-40: a damaged catalogue is a clear sentence, not a traceback."""
    with pytest.raises(StoreError, match="queue:orders"):
        EntityRow.parse("queue:orders", text)


def test_a_row_of_a_newer_format_is_not_guessed_at() -> None:
    """E-40: this version would misread it."""
    with pytest.raises(StoreTooNew, match="newer version"):
        EntityRow.parse("queue:orders", '{"format":3}')


def test_a_partitioned_entity_is_written_so_that_older_versions_refuse_it() -> None:
    """P-1, P-9: every fragment with its store, under a format that a version without partitions does not read."""
    shares = tuple(Share(f"store-{n % 2}", FragmentKey(2 * n + 1), FragmentKey(2 * n + 2)) for n in range(4))
    description = QueueDescription("Orders", enable_partitioning=True, fragment_count=4)
    row = EntityRow("orders", description, shares, True, 41)
    assert EntityRow.parse("queue:orders", row.text(None)) == row
    assert json.loads(row.text(None))["format"] == 2
    assert json.loads(_QUEUE.text(None))["format"] == 1
    for text in ('{"format":2,"description":{}}', '{"format":2,"description":{},"shares":[7]}'):
        with pytest.raises(StoreError, match="cannot be read"):
            EntityRow.parse("queue:orders", text)


def test_every_store_holds_the_same_version_of_the_same_rows() -> None:
    """Catalogue: after creations, updates and deletions, once the copies have caught up."""

    async def test(bench: NamespaceBench) -> None:
        await asyncio.gather(*(bench.create(f"q{number}") for number in range(20)))
        await bench.namespace.update(replace(bench.namespace.description("q1"), max_delivery_count=5))
        await bench.namespace.delete("q2")
        await settle()
        first, *others = [await store.catalogue() for store in bench.stores]
        assert first[0] == 1 + 20 + 2
        assert others == [first, first]
        assert "queue:q2" not in first[1]

    on_a_bench(test, 3)


def test_many_queues_at_once_are_one_change() -> None:
    """Catalogue: one commit in each store, however many queues."""

    async def test(bench: NamespaceBench) -> None:
        wanted = [QueueDescription(f"q{number}") for number in range(500)]
        created = await bench.namespace.create([NewEntity(each) for each in wanted])
        assert [description.path for description in created] == [description.path for description in wanted]
        assert (await bench.stores[0].catalogue())[0] == 2

    on_a_bench(test, 2)


def test_the_copy_of_a_busy_store_is_written_in_one_go() -> None:
    """Catalogue: changes that come while a copy is being written are gathered."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("a")
        await settle()
        bench.stores[1].hold_commits()
        description = bench.namespace.description("a")
        for count in range(2, 12):
            await bench.namespace.update(replace(description, max_delivery_count=count))
        bench.stores[1].release_commits()
        await settle()
        assert await bench.stores[1].catalogue() == await bench.stores[0].catalogue()

    on_a_bench(test, 2)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:/data/store-0.db", "sqlite:/data/store-0.db"),
        ("memory:x", "memory:x"),
        ("sqlite:/data/what?/store#0.db", "sqlite:/data/what?/store#0.db"),
        ("postgresql://bus:s3cret@host/db", "postgresql://host/db"),
        ("postgresql://bus:a@b@host/db", "postgresql://host/db"),
        ("postgresql://u:p@h:5432/db?sslkey=x#y", "postgresql://h:5432/db"),
        ("postgresql://u:a/b?c#d@h/db", "postgresql://h/db"),
        ("host=h password=p", ""),
        ("host=h:5 password=p", ""),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    """A-10: lists of stores are printed and logged."""
    assert public_url(url) == shown
