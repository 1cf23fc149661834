"""Names that clients choose: what a database may take for equal, sort otherwise, or be unable to hold."""

from typing import Any

from tests.store_contract.scenario import World, add_fragment, message, put, put_in_session
from tests.store_contract.test_session import session_numbers

#: Collations fold case, accents, width, composition, blanks and ignorable marks; text cannot hold U+0000.
TRAPS = [
    "", " ", "  ", "a", "A", "a ", "a\0", "a\0b", "\0", "ä", "a\u0308", "æ", "ae", "ß", "ss",
    "ẞ", "I", "i", "ı", "İ", "ﬁ", "fi", "１", "1", "01", "é", "e\u0301", "\u200d", "a\u200db",
    "\ufeffa", "a\u00ada", "aa", "%", "_", "\\", "'", "\\x41", "\r\n", "\n", "\uffff",
    "\U00010000", "\U0010ffff", "ǆ", "Ǆ", "ǅ", "Å", "\u212b", "Ω", "\u2126", "ｱ", "ア",
    "\N{DESERET CAPITAL LETTER LONG I}" * 128, "\N{DESERET SMALL LETTER LONG I}" * 128,
    "\U0001f68c" * 128, "x" * 128,
]  # fmt: skip


def test_sessions_with_names_like_these_are_apart_and_in_order(world: World) -> None:
    """X-16: by their code points, on every store; whoever goes on behind a name misses none and sees none twice."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number, name in enumerate(TRAPS, 1):
            put_in_session(store, fragment, name, number)
            store.batch().session_states.append((fragment, name, name.encode(), number))
        await store.flush()
        for number, name in enumerate(TRAPS, 1):
            assert await session_numbers(store, fragment, name) == [number]
            row = await store.session(fragment, name)
            assert (row.active, row.state) == (1, name.encode())
        found: list[str] = []
        while page := await store.sessions(fragment, None, 0, 7, found[-1] + "\0" if found else ""):
            found += page
        assert found == sorted(TRAPS)

    world.run(play)


def test_messages_with_names_like_these_come_back_as_they_were(world: World) -> None:
    """S-1: message id, session and partition key."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number, name in enumerate(TRAPS, 1):
            put(store, fragment, message(number, message_id=name, partition_key=name, session_id=name))
        await store.flush()
        page = await store.messages(fragment, 0, 0, 1_000, 1 << 30)
        found = [(each.message_id, each.partition_key, each.session_id) for each in page.messages]
        assert found == [(name, name, name) for name in TRAPS]

    world.run(play)


def test_message_ids_like_these_are_no_duplicates_of_each_other(world: World) -> None:
    """S-40: each is known by itself alone."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for at, name in enumerate(TRAPS):
            assert await store.known_ids(fragment, TRAPS, 0) == set(TRAPS[:at])
            store.batch().duplicate_ids.append((fragment, name, 100 + at))
            await store.flush()

    world.run(play)
