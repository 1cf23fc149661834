"""F4: files that bear what no program wrote: a flipped bit, a lost end, a page of zeros, in the database and its log.

Most rounds work on copies of one filled store in this process; the last ones on a real server. The rules: no body is
ever delivered changed, every loss is noticed (an error at opening, a damaged row, lost commits, a failing read), and
the queues of other stores live on.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE
from busway.store.contract import FragmentKey, StoreError
from busway.store.sqlite.file_check import FileCheck
from busway.store.sqlite.store import SqliteStore
from tests.chaos.damaged_server import damage_a_server, hit_bodies
from tests.chaos.scenario import Outcome
from tests.store_contract.scenario import add_fragment, delete, message, put

PAGE_BYTES: Final = 4096
MESSAGES: Final = 1500
SENT_TOGETHER: Final = 30
#: One round in so many is played on a server as well.
SERVER_SHARE: Final = 50
_LOTS: Final = 1 << 40

_UNHURT: Final = "nothing of use was hit"
_FILES = ("first.db", "first.db-wal", "first.high-water")


def body_of(number: int) -> bytes:
    """Every body differs, and tells its number."""
    return b"%d:" % number + random.Random(number).randbytes(number % 900)


class FilledStore:
    """The files of a store that was killed: most of it in the database, the rest still in the log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.fragment = FragmentKey(0)
        self.expected: set[int] = set()

    def fill(self) -> None:
        self._folder.mkdir(parents=True)
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        live = self._folder / "live"
        live.mkdir()
        store = open_store(live)
        await store.open()
        self.fragment = add_fragment(store)
        for first in range(1, MESSAGES, SENT_TOGETHER):
            numbers = range(first, first + SENT_TOGETHER)
            put(store, self.fragment, *(message(n, body_of(n)) for n in numbers))
            await store.flush()
            if first % 4 == 1:
                delete(store, self.fragment, first)
                await store.flush()
            else:
                self.expected.add(first)
            self.expected.update(numbers[1:])
        await asyncio.sleep(1.3)  # the high-water mark follows within a second
        self._copy(live, self._folder)
        await store.close()

    def copy_to(self, folder: Path) -> None:
        folder.mkdir()
        self._copy(self._folder, folder)

    def _copy(self, source: Path, target: Path) -> None:
        for name in _FILES:
            shutil.copy(source / name, target / name)


def open_store(folder: Path) -> SqliteStore:
    return SqliteStore(
        "first", folder / "first.db", Clock(), reserve_bytes=0, space_low_bytes=0, checkpoint_bytes=300_000
    )


def hurt(file: Path, chance: random.Random) -> str:
    """One damage; says which."""
    data = bytearray(file.read_bytes())
    at = chance.randrange(len(data))
    kind = chance.choice(("flipped a bit", "cut off the end", "zeroed a page"))
    if kind == "flipped a bit":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "cut off the end":
        del data[at:]
    else:
        start = at - at % PAGE_BYTES
        data[start : start + PAGE_BYTES] = bytes(len(data[start : start + PAGE_BYTES]))
    file.write_bytes(data)
    return f"{kind} of {file.name} at {at}"


async def judge(folder: Path, filled: FilledStore) -> tuple[str, str | None]:
    """(how it went, what is wrong or None)."""
    store = open_store(folder)
    try:
        await store.open()
    except StoreError as error:
        return "refused at opening", None if "first.db" in str(error) else f"unclear sentence: {error}"
    try:
        return await _judge_rows(store, filled)
    finally:
        await store.close()


async def _judge_rows(store: SqliteStore, filled: FilledStore) -> tuple[str, str | None]:
    found: dict[int, bytes] = {}
    damaged: set[int] = set()
    after = 0
    try:
        keys = [row.key for row in await store.fragments()]
        while True:
            page = await store.messages(filled.fragment, PLACE_ACTIVE, after, 500, _LOTS)
            found.update((each.sequence_number, each.bare) for each in page.messages)
            damaged.update(page.damaged)
            if not page.more:
                break
            after = max([each.sequence_number for each in page.messages] + page.damaged)
    except StoreError:
        return "a read failed", _changed(found)
    wrong = _changed(found)
    if wrong is not None:
        return "", wrong
    missing = filled.expected - found.keys() - damaged
    extra = found.keys() - filled.expected
    if damaged:  # a page of zeros shows as rows with the number 0
        return "damaged rows reported", _far_apart(filled.expected - found.keys())
    if not missing and not extra:
        return _UNHURT, None
    if store.lost_commits or filled.fragment not in keys:
        return "lost commits noticed", None
    return "", f"{len(missing)} messages vanished and {len(extra)} came back without a word"


def _far_apart(missing: set[int]) -> str | None:
    """One damage lies in one place, and so do the messages that it takes, or those that were sent together with them;
    all others are there."""
    sent = {(number - 1) // SENT_TOGETHER for number in missing}
    if not sent or max(sent) - min(sent) + 1 == len(sent):
        return None
    return f"{len(missing)} messages are missing that do not lie side by side: {sorted(missing)[:9]}"


def _changed(found: dict[int, bytes]) -> str | None:
    changed = [number for number, bare in found.items() if bare != body_of(number)]
    return f"changed bodies delivered: {changed[:5]}" if changed else None


def damaged_files(folder: Path, rounds: int, seed: int) -> Outcome:
    chance = random.Random(seed)
    violations, ways = damage_copies(folder, rounds, chance)
    served = max(2, rounds // SERVER_SHARE)
    violations.update(damage_a_server(folder / "server", served, chance, hurt))
    violations.update(hit_bodies(folder / "bodies", served, chance))
    note = ", ".join(f"{way} {count}" for way, count in ways.most_common())
    note += f"; servers {served}, bodies hit {served}"
    return Outcome(
        "damaged files", rounds, rounds, MESSAGES, MESSAGES, violations=dict(violations), note=f"({note})"
    )


def damage_copies(folder: Path, rounds: int, chance: random.Random) -> tuple[Counter[str], Counter[str]]:
    """(violations, how the rounds went)."""
    with _quiet_stores():
        return _damage_copies(folder, rounds, chance)


@contextmanager
def _quiet_stores() -> Iterator[None]:
    """Two hundred damaged stores have much to complain about."""
    logger = logging.getLogger("busway.store")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _damage_copies(folder: Path, rounds: int, chance: random.Random) -> tuple[Counter[str], Counter[str]]:
    filled = FilledStore(folder / "filled")
    filled.fill()
    violations: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    for number in range(rounds):
        copy = folder / f"copy-{number}"
        filled.copy_to(copy)
        what = hurt(copy / chance.choice(_FILES[:2]), chance)
        found = FileCheck("first", copy / _FILES[0], lambda *_: None).run().findings
        way, wrong = asyncio.run(judge(copy, filled))
        if way != _UNHURT and not found:
            wrong = wrong or f"{way}, and a check finds nothing"
        if wrong is not None:
            violations[f"{what}: {wrong}"] += 1
        else:
            ways[way] += 1
            shutil.rmtree(copy)
    return violations, ways
