"""Faults against a bus that is copied to other stores."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

_COPY: Final = "busway/safekeeping/store_copy.py"
_TESTS: Final = "tests/server/test_stores_copy.py"
_ROWS: Final = "tests/store_contract/test_stored_rows.py"

COPIES: Final = (
    Fault(
        "a page without its note",
        "a copy that is stopped puts no row twice",
        _COPY,
        "        self.note.after = page[-1].position\n",
        "",
        (f"{_TESTS}::test_a_copy_may_end_at_every_commit",),
    ),
    Fault(
        "the half of a copy is served",
        "until a copy is whole no server takes it",
        "busway/broker/namespace/catalogue.py",
        "        if COPYING_KEY in rows:\n",
        "        if COPYING_KEY in {}:\n",
        (f"{_TESTS}::test_what_is_not_there_as_it_was_put_is_noticed",),
    ),
    Fault(
        "what was put is believed",
        "a copy is compared with what can be read of it",
        _COPY,
        "        if _messages(found) != _messages(self.note):\n",
        "        if _messages(found) is None:\n",
        (f"{_TESTS}::test_what_is_not_there_as_it_was_put_is_noticed",),
    ),
    Fault(
        "an index is not compared",
        "expiry entries and sessions are there, too",
        _COPY,
        "            for index in INDEXES:\n",
        "            for index in ():\n",
        (f"{_TESTS}::test_what_is_not_there_as_it_was_put_is_noticed",),
    ),
    Fault(
        "each copy with a body of its own",
        "what lay once lies once again",
        "busway/store/stored_rows.py",
        "        if self._payload:\n            batch.puts_copies = True\n",
        "",
        (f"{_TESTS}::test_copies_of_a_publish_share_their_body_again",),
    ),
    Fault(
        "a run is read from its beginning again",
        "reading goes on behind any row",
        "busway/store/sqlite/file_rows.py",
        "                    if key > behind and not run.marks.is_gone(index):\n",
        "                    if not run.marks.is_gone(index):\n",
        (f"{_ROWS}::test_reading_goes_on_behind_any_row",),
    ),
    Fault(
        "sharers are met again",
        "reading goes on behind any row, in a database too",
        "busway/store/postgres/database_rows.py",
        "                if after and position <= after:\n",
        "                if after and position < after:\n",
        (f"{_ROWS}::test_reading_goes_on_behind_any_row",),
    ),
    Fault(
        "a copy begins at its first commit",
        "it is not taken for an older state of what had its name before",
        "busway/safekeeping/store_ends.py",
        "        begin_behind(self._database.url, self._number, self._clock.wall_ms())\n",
        "        begin_behind(self._database.url, self._number, 1)\n",
        (f"{_TESTS}::test_a_copy_is_not_taken_for_an_older_state_of_what_had_its_name",),
    ),
    Fault(
        "a hub looks for its logs under their old keys",
        "fragments have other keys in other stores",
        "busway/safekeeping/catalogue_map.py",
        'log=self._fragment(key, home, share["log"])',
        'log=share["log"]',
        ("tests/unit/safekeeping/test_catalogue_map.py",),
    ),
)
