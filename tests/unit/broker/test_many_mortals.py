"""Many entities with an AutoDeleteOnIdle: what one change, one look around and one deadline may cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from busway.broker.namespace.auto_delete import SLICE_MAX, AutoDelete, Candidate
from busway.timers import Timers
from tests.harness.manual_clock import ManualClock
from tests.unit.broker.namespace_bench import NamespaceBench, on_a_bench, settle

COUNT = 10_000
IDLE_MS = 300_000


class Room:
    """Counts how often an entity is looked at."""

    def __init__(self, clock: ManualClock, count: int = COUNT) -> None:
        self.clock = clock
        self.looked_at = 0
        self.dues_asked = 0
        self.used_at_ms = {f"q{number}": clock.wall_ms() for number in range(count)}
        self.idle_ms = dict.fromkeys(self.used_at_ms, IDLE_MS)
        self.in_use: set[str] = set()
        self.out_of_sight: set[str] = set()

    def mortal_keys(self) -> Iterable[str]:
        return self.used_at_ms

    def earliest_due_ms(self, key: str) -> int | None:
        self.dues_asked += 1
        return None if key not in self.used_at_ms else self.used_at_ms[key] + self.idle_ms[key]

    def auto_delete_candidate(self, key: str) -> Candidate | None:
        self.looked_at += 1
        if key in self.out_of_sight or key not in self.used_at_ms:
            return None
        return Candidate(key, self.idle_ms[key], self.used_at_ms[key], key in self.in_use)


class Scene:
    def __init__(self, count: int = COUNT) -> None:
        self.clock = ManualClock()
        self.timers = Timers()
        self.room = Room(self.clock, count)
        self.asked: list[str] = []
        self.auto_delete = AutoDelete(self.room, self.clock, self.timers, self.asked.append)
        self.auto_delete.watch_all()

    def turn(self) -> int:
        """One tick: how many entities were looked at."""
        before = self.room.looked_at
        self.timers.run(self.clock.monotonic())
        return self.room.looked_at - before

    def advance(self, seconds: int) -> list[int]:
        """Second by second, as a ticker that lets others have their turn: what each turn cost."""
        costs = []
        for _ in range(seconds):
            self.clock.advance(1)
            costs.append(self.turn())
            while (self.timers.next_deadline() or 1e18) <= self.clock.monotonic():
                costs.append(self.turn())
        return costs


def test_a_change_looks_at_no_other_entity() -> None:
    """Attack: every create or update walked all entities with AutoDeleteOnIdle, 76 ms at 5,000."""
    scene = Scene()
    scene.room.looked_at = scene.room.dues_asked = 0
    for number in range(100):
        scene.auto_delete.watch(f"q{number}")
    assert (scene.room.looked_at, scene.room.dues_asked) == (0, 100)
    assert len(scene.timers) == 1


def test_a_thousand_changes_of_one_entity_leave_one_entry() -> None:
    """Attack: memory follows the entities, not the changes."""
    scene = Scene(10)
    for _ in range(100_000):
        scene.clock.advance(0.001)
        scene.room.used_at_ms["q3"] = scene.clock.wall_ms()
        scene.auto_delete.watch("q3")
    assert scene.auto_delete.entries() <= 64


def test_a_look_around_is_cut_into_slices() -> None:
    """Attack: once a minute all were looked at in one turn."""
    scene = Scene()
    scene.room.in_use.update(scene.room.used_at_ms)
    scene.auto_delete.look_around()
    costs = [scene.room.looked_at, *scene.advance(1)]
    assert max(costs) <= SLICE_MAX
    assert sum(costs) == COUNT
    scene.room.in_use.clear()
    scene.advance(340)
    assert scene.asked == []
    scene.advance(25)
    assert sorted(set(scene.asked)) == sorted(scene.room.used_at_ms)


def test_many_that_are_due_at_once_are_cut_into_slices() -> None:
    """E-110, Attack: each is asked for, and no turn looks at all of them."""
    scene = Scene()
    assert scene.advance(299) == [0] * 299
    costs = scene.advance(2)
    assert max(costs) <= SLICE_MAX
    assert sorted(set(scene.asked)) == sorted(scene.room.used_at_ms)


def test_a_use_moves_the_deadline_away_without_anybody_being_told() -> None:
    """E-111: the entry is looked at when it is due, and stands at the new moment."""
    scene = Scene(3)
    scene.clock.advance(200)
    scene.room.used_at_ms["q1"] = scene.clock.wall_ms()
    scene.advance(105)
    assert set(scene.asked) == {"q0", "q2"}
    scene.asked.clear()
    for key in ("q0", "q2"):
        del scene.room.used_at_ms[key]
        scene.auto_delete.forget(key)
    scene.advance(190)
    assert scene.asked == []
    scene.advance(10)
    assert set(scene.asked) == {"q1"}


def test_a_shorter_time_counts_at_once_and_a_longer_one_too() -> None:
    """E-30: a shorter time counts at once and a longer one too."""
    scene = Scene(2)
    scene.room.idle_ms["q0"] = 600_000
    scene.auto_delete.watch("q0")
    scene.advance(301)
    assert set(scene.asked) == {"q1"}
    scene.room.idle_ms["q0"] = 310_000
    scene.auto_delete.watch("q0")
    scene.advance(10)
    assert set(scene.asked) == {"q0", "q1"}


def test_one_whose_store_is_away_is_looked_at_again() -> None:
    """E-110: without its store nobody knows when it was used; when that is back it counts again."""
    scene = Scene(1)
    scene.room.out_of_sight.add("q0")
    scene.advance(400)
    assert scene.asked == []
    scene.room.out_of_sight.clear()
    scene.advance(61)
    assert scene.asked[0] == "q0"


def test_an_idle_entity_is_asked_for_once_while_its_deletion_waits() -> None:
    """Found by review: while the catalogue's home hung, each second left one more task for each idle entity."""

    async def test(bench: NamespaceBench) -> None:
        for number in range(5):
            await bench.create(f"q{number}", auto_delete_on_idle_ms=IDLE_MS)
        await bench.advance(299)
        bench.stores[0].hold_commits()
        await bench.namespace.contents.changing.acquire()  # a change that waits for the home
        await bench.advance(30, 1)
        assert len(bench.namespace.background._tasks) <= 6
        bench.namespace.contents.changing.release()
        bench.stores[0].release_commits()
        await settle()
        await bench.advance(3, 1)
        assert bench.namespace.queues() == []

    on_a_bench(test)


def test_creating_and_updating_count_no_other_entity() -> None:
    """Attack: the same seen from a namespace, whose counters are read for nobody."""

    async def test(bench: NamespaceBench) -> None:
        entities = bench.namespace.contents.entities
        for number in range(50):
            await bench.create(f"q{number}", auto_delete_on_idle_ms=IDLE_MS)
        counted: list[str] = []
        counts = entities.counts.of
        entities.counts.of = lambda row: counted.append(row.key) or counts(row)  # type: ignore[method-assign]
        made = await bench.create("new", auto_delete_on_idle_ms=IDLE_MS)
        await bench.namespace.update(replace(made, max_delivery_count=3))
        assert counted == []

    on_a_bench(test)
