"""The fence and the look of PostgreSQL stores, taken away one by one."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

_FAULTS: Final = "tests/store_contract/test_postgres_faults.py"

POSTGRES: Final = (
    Fault(
        "no fence",
        "a commit names its store's epoch and number in its own transaction",
        "busway/store/postgres/committer.py",
        "        statements = [_BEGIN, self._fence(parts), *_statements(FIRST, parts)]\n",
        "        statements = [_BEGIN, *_statements(FIRST, parts)]\n",
        (f"{_FAULTS}::test_who_opens_a_store_second_has_it",),
    ),
    Fault(
        "sent again without a look",
        "what may be stored is looked after before it is sent again",
        "busway/store/postgres/committer.py",
        "                parts = self._look(parts, ends_s)\n",
        "",
        (f"{_FAULTS}::test_a_commit_that_is_cut_at_any_byte_is_stored_once",),
    ),
    Fault(
        "whoever looks has the store",
        "a look finds only stores that are still ours",
        "busway/store/postgres/queries.sql",
        "WHERE stores.store = given.store AND stores.opening = given.opening\n",
        "WHERE stores.store = given.store\n",
        (f"{_FAULTS}::test_the_answer_of_a_store_that_was_taken_is_not_taken_for_success",),
    ),
    Fault(
        "a warning is success",
        "a wait for a standby that was cut short proves nothing",
        "busway/store/postgres/writing_connection.py",
        '        if has_commit and (self._warning is not None or results[-1].command_status != b"COMMIT"):\n',
        '        if has_commit and results[-1].command_status != b"COMMIT":\n',
        (f"{_FAULTS}::test_a_commit_that_warns_is_proved_before_it_is_told",),
    ),
    Fault(
        "one store's fault is taken for all",
        "a failure of one store's part never fails another's",
        "busway/store/postgres/committer.py",
        "                elif len(parts) > 1:\n",
        "                elif len(parts) > 99:\n",
        (f"{_FAULTS}::test_what_one_store_cannot_write_fails_no_other",),
    ),
)
