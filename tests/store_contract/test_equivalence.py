"""Random batches: every store must answer as the memory store does, after every commit and restart."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import Change, Counters, FragmentKey, FragmentRow, Move, TransferMark
from busway.store.rows import SHARING_SAVES_BYTES_MIN
from busway.store.sqlite.store import SqliteStore
from tests.harness.memory_store import copy_message
from tests.store_contract.scenario import (
    LOTS,
    NewWorld,
    World,
    check_postgres_references,
    check_references,
    fields_of,
    message,
)

PLACES = (PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED)
SESSIONS = ("", "a", "b", "ä")
IDS = ("i", "j", "k")

#: One step is a verb and raw choices; the model turns them into something a broker could do.
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "put",
                "put",
                "put",
                "put_run",
                "put_run",
                "publish",
                "publish",
                "move",
                "move",
                "change",
                "delete",
                "delete",
                "delete_range",
                "state",
                "id",
                "purge",
                "drop",
                "create",
                "catalogue",
                "mark",
                "commit",
                "commit",
                "sweep",
                "restart",
            ]
        ),
        st.integers(0, 1 << 30),
        st.integers(0, 1 << 30),
    ),
    max_size=60,
)


@dataclass
class Broker:
    """As much of a broker as is needed to fill batches it could really fill: rows move only once per batch."""

    stores: list[Any]
    fragments: list[FragmentKey] = field(default_factory=list)
    rows: dict[tuple[FragmentKey, int], int] = field(default_factory=dict)  # (fragment, number) → place
    busy: set[tuple[FragmentKey, int]] = field(default_factory=set)
    counter: int = 0
    clock_ms: int = 1_000

    def each(self) -> list[Any]:
        return [store.batch() for store in self.stores]

    def pick(self, choice: int) -> tuple[FragmentKey, int] | None:
        free = sorted(set(self.rows) - self.busy)
        return free[choice % len(free)] if free else None

    def fragment(self, choice: int) -> FragmentKey | None:
        return self.fragments[choice % len(self.fragments)] if self.fragments else None

    def number(self) -> int:
        self.counter += 1
        return self.counter

    def create(self, _x: int, _y: int) -> None:
        keys = {store.next_fragment_key() for store in self.stores}
        assert len(keys) == 1
        (key,) = keys
        self.fragments.append(key)
        for batch in self.each():
            batch.fragments_created.append(FragmentRow(key, f"queue-{key}", 0, Counters()))

    def put(self, x: int, y: int) -> None:
        fragment = self.fragment(x)
        if fragment is None:
            return
        place, session_id = PLACES[y % 3], (None, *SESSIONS)[y // 3 % 5]
        made = message(
            self.number(),
            b"x" * (x % 50),
            head=b"h" * (y % 3),
            session_id=session_id,
            partition_key=session_id,
            message_id=IDS[x % 3] if x % 2 else None,
            scheduled_at_ms=y % 100,
            ttl_ms=x % 5 - 1,
        )
        if x % 7 == 0:
            made.expires_at_ms = x % 200
        self.rows[fragment, made.sequence_number] = place
        self.busy.add((fragment, made.sequence_number))
        for batch in self.each():
            batch.puts.append((fragment, place, copy_message(made)))
            if session_id is not None and place == PLACE_ACTIVE:
                batch.session_entries.append((fragment, session_id, made.sequence_number))
            if x % 7 == 0 and place == PLACE_ACTIVE:
                batch.expiry_entries.append((fragment, made.expires_at_ms, made.sequence_number))

    def put_run(self, x: int, y: int) -> None:
        """Consecutive numbers, most of them alike."""
        fragment = self.fragment(x)
        if fragment is None:
            return
        for index in range(2 + y % 9):
            made = message(
                self.number(),
                b"%d" % index * (x % 20),
                enqueued_at_ms=1_000 + (index if y % 5 == 0 else 0),
                partition_key="p" if (x + index) % 4 == 0 else None,
            )
            if x % 5 == 0 and index == 3:
                made.expires_at_ms = x % 200
            self.rows[fragment, made.sequence_number] = PLACE_ACTIVE
            self.busy.add((fragment, made.sequence_number))
            for batch in self.each():
                batch.puts.append((fragment, PLACE_ACTIVE, copy_message(made)))
                if x % 5 == 0 and index == 3:
                    batch.expiry_entries.append((fragment, made.expires_at_ms, made.sequence_number))

    def delete_range(self, x: int, y: int) -> None:
        """Neighbours of a message that is active, as far as they are."""
        row = self.pick(x)
        if row is None:
            return
        numbers = [
            number
            for number in range(row[1], row[1] + 2 + y % 8)
            if self.rows.get((row[0], number)) == PLACE_ACTIVE and (row[0], number) not in self.busy
        ]
        for number in numbers:
            del self.rows[row[0], number]
            self.busy.add((row[0], number))
        for batch in self.each():
            batch.deletes.append((row[0], PLACE_ACTIVE, numbers))

    def publish(self, x: int, y: int) -> None:
        """Copies that hold the identical body, in several fragments and places."""
        body = b"%d" % (x % 10) * SHARING_SAVES_BYTES_MIN
        for index, fragment in enumerate(self.fragments[: 2 + x % 3]):
            made = message(self.number(), body, head=b"h" * (y % 2), ttl_ms=index - 1)
            place = PLACES[(y >> index) % 3]
            self.rows[fragment, made.sequence_number] = place
            self.busy.add((fragment, made.sequence_number))
            for batch in self.each():
                batch.puts_copies = True
                batch.puts.append((fragment, place, copy_message(made)))

    def mark(self, x: int, y: int) -> None:
        mark = TransferMark(f"store-{x % 2}", FragmentKey(1 + x % 3), y % 4)
        for batch in self.each():
            (batch.transfer_marks if y // 4 % 2 else batch.transfer_marks_removed).append(mark)

    def move(self, x: int, y: int) -> None:
        row, fragment = self.pick(x), self.fragment(y)
        if row is None or fragment is None:
            return
        source, place = self.rows.pop(row), PLACES[y % 3]
        same_number = fragment == row[0] and place != source and x % 2 == 0
        target = row if same_number else (fragment, self.number())
        self.rows[target] = place
        self.busy |= {row, target}
        for batch in self.each():
            batch.moves.append(
                Move(
                    row[0],
                    source,
                    row[1],
                    target[0],
                    place,
                    target[1],
                    delivery_count=(None, x % 1000)[y % 2],
                    changes=(None, b"m%d" % (x % 10))[x % 2],
                    enqueued_at_ms=(None, y)[x // 2 % 2],
                    expires_at_ms=(None, y % 300)[x // 4 % 2],
                    session_id=(None, *SESSIONS)[y // 6 % 5] if place == PLACE_ACTIVE else None,
                    with_expiry_entry=y // 30 % 2 == 0,
                )
            )

    def change(self, x: int, y: int) -> None:
        row = self.pick(x)
        if row is not None:
            for batch in self.each():
                changes = None if y % 3 else b"c%d" % (y % 100)
                batch.changes.append(Change(row[0], self.rows[row], row[1], y, changes))

    def delete(self, x: int, _y: int) -> None:
        row = self.pick(x)
        if row is not None:
            place = self.rows.pop(row)
            self.busy.add(row)
            for batch in self.each():
                batch.deletes.append((row[0], place, [row[1]]))

    def state(self, x: int, y: int) -> None:
        fragment = self.fragment(x)
        self.clock_ms += 10
        if fragment is not None:
            for batch in self.each():
                state = None if y % 3 == 0 else b"s" * (y % 20)
                batch.session_states.append((fragment, SESSIONS[x % 4], state, self.clock_ms))

    def id(self, x: int, y: int) -> None:
        fragment = self.fragment(x)
        self.clock_ms += 10
        if fragment is not None:
            for batch in self.each():
                batch.duplicate_ids.append((fragment, IDS[y % 3], self.clock_ms))

    def purge(self, x: int, y: int) -> None:
        fragment = self.fragment(x)
        if fragment is not None:
            for batch in self.each():
                batch.duplicate_purges.append((fragment, self.clock_ms - y % 100))

    def catalogue(self, x: int, y: int) -> None:
        for batch in self.each():
            batch.catalogue[f"key-{x % 3}"] = None if y % 4 == 0 else f"text {y}"
            batch.catalogue_version = y

    def drop(self, x: int, _y: int) -> None:
        fragment = self.fragment(x)
        if fragment is not None and x % 3 == 0:
            self.fragments.remove(fragment)
            self.rows = {row: place for row, place in self.rows.items() if row[0] != fragment}
            for batch in self.each():
                batch.fragments_dropped.append(fragment)


async def pages(store: Any, key: FragmentKey, after: int, limit: int, bytes_max: int) -> list[object]:
    """Where a page ends is the store's own business, as long as it says that there may be more."""
    seen: list[object] = []
    while True:
        page = await store.messages(key, PLACE_ACTIVE, after, limit, bytes_max)
        assert len(page.messages) <= limit
        seen += [fields_of(each) for each in page.messages]
        if not page.more:
            return seen
        after = page.messages[-1].sequence_number


async def picture(store: Any, keys: range) -> list[object]:
    """Everything a store can be asked."""
    seen: list[object] = [await store.catalogue(), await store.next_due_ms(), await store.next_expiry_ms()]
    seen += [await store.due(50, 5), await store.due(1000, 100), await store.expired_entries(100, 7)]
    seen.append([(row.key, row.owner) for row in await store.fragments()])
    seen += [await store.transfer_marks(), await store.transfer_marks("store-1")]
    for number in keys:
        key = FragmentKey(number)
        for place in PLACES:
            page = await store.messages(key, place, 0, 100, LOTS)
            assert page.damaged == []
            seen.append([fields_of(each) for each in page.messages])
        page = await store.by_number(key, PLACE_ACTIVE, range(3, 40, 2))
        seen.append([fields_of(each) for each in page.messages])
        seen.append(sorted(await store.sizes(key, PLACE_ACTIVE, range(1, 30))))
        for after, limit, bytes_max in ((0, 3, 50), (4, 1, LOTS), (11, 100, 1)):
            seen.append(await pages(store, key, after, limit, bytes_max))
        for session_id in (None, *SESSIONS):
            page = await store.peek(key, 2, 7, 120, session_id)
            seen.append(([fields_of(each) for each in page.messages], page.more))
        for session_id in SESSIONS:
            page = await store.session_messages(key, session_id, 1, 3, 100)
            seen.append(([fields_of(each) for each in page.messages], page.more))
            row = await store.session(key, session_id)
            seen.append(row and (row.active, row.first_number, row.state, row.state_set_at_ms))
        seen.append(await store.next_sessions(key, 0, 2))
        seen.append(await store.next_sessions(key, 3, 10))
        seen.append(await store.sessions(key, None, 1, 2))
        seen.append(await store.sessions(key, 1_050, 0, 10))
        seen.append(await store.known_ids(key, IDS, 1_020))
    return seen


async def compare(stores: list[Any], broker: Broker) -> None:
    keys = range(1, 2 + max(broker.fragments, default=0))
    pictures = [await picture(store, keys) for store in stores]
    assert pictures[1] == pictures[0]
    if isinstance(stores[1], SqliteStore):
        check_references(stores[1]._path)


async def replay(plan: list[tuple[str, int, int]], worlds: list[World]) -> None:
    stores = [world.store() for world in worlds]
    for store in stores:
        await store.open()
    broker = Broker(stores)
    for _ in range(2):
        broker.create(0, 0)
    for verb, x, y in [*plan, ("commit", 0, 0), ("restart", 0, 0)]:
        if verb in ("commit", "restart", "sweep"):
            for store in stores:
                await store.flush()
            broker.busy.clear()
            await compare(stores, broker)
        if verb == "sweep":
            for store in stores:
                await store.sweep_dropped(1 + x % 20)
        elif verb == "restart":
            for index, world in enumerate(worlds):
                await stores[index].close()
                stores[index] = world.store()
                await stores[index].open()
            await compare(stores, broker)
        elif verb != "commit":
            getattr(broker, verb)(x, y)
    for store in stores:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=steps)
def test_random_batches_leave_both_stores_with_the_same_answers(
    new_world: NewWorld, kind: str, plan: list[tuple[str, int, int]]
) -> None:
    """F2: all kinds of joins, in any mixture, over commits, sweeps and restarts."""
    with new_world("memory") as memory, new_world(kind) as world:
        asyncio.run(replay(plan, [memory, world]))
        if kind == "postgres":
            check_postgres_references(world.url)


async def _one_page(store: Any, broker: Broker, committed: set[tuple[FragmentKey, int]]) -> None:
    """A page must show exactly the committed active rows that no join has taken away since."""
    fragment = broker.fragments[0]
    page = await store.messages(fragment, PLACE_ACTIVE, 0, 1000, LOTS)
    shown = {(fragment, each.sequence_number) for each in page.messages}
    active = {row for row, place in broker.rows.items() if place == PLACE_ACTIVE and row[0] == fragment}
    assert shown <= active
    assert {row for row in active & committed if row not in broker.busy} <= shown


async def replay_without_waiting(plan: list[tuple[str, int, int]], world: World) -> None:
    """Reads run while batches gather and are in flight; each is checked in the turn it returns."""
    store = world.store()
    await store.open()
    broker = Broker([store])
    broker.create(0, 0)
    reads: list[asyncio.Task[None]] = []
    for verb, x, y in plan:
        if verb in ("put", "put_run", "move", "change", "delete", "delete_range", "state"):
            getattr(broker, verb)(x, y)
        elif verb == "commit":
            await asyncio.sleep(0)
        else:
            committed = set(broker.rows) - broker.busy
            reads.append(asyncio.create_task(_one_page(store, broker, committed)))
        if verb == "restart":
            await store.flush()
            broker.busy.clear()
    await asyncio.gather(*reads)
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=steps)
def test_reads_among_joins_show_what_stays(
    new_world: NewWorld, kind: str, plan: list[tuple[str, int, int]]
) -> None:
    """Contract: never a row that a joined batch removes, always the committed ones that stay."""
    with new_world(kind) as world:
        asyncio.run(replay_without_waiting(plan, world))
