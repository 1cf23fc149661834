"""The fence and the look of PostgreSQL stores, taken away one by one."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

_FAULTS: Final = "tests/store_contract/test_postgres_faults.py"
_ENDS: Final = "tests/store_contract/test_postgres_ends.py"
_RESTORES: Final = "tests/fault/test_postgres_restores.py"
_MARKS: Final = "tests/store_contract/test_transfer_marks.py"

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
    Fault(
        "a store that was put back goes on",
        "commits that were reported and are not there are noticed",
        "busway/store/postgres/loss.py",
        "    missing = max(mark.number - row.number, mark.lost, 0)\n",
        "    missing = 0\n",
        (f"{_RESTORES}::test_a_restore_while_the_server_is_away_is_noticed_by_its_note",),
    ),
    Fault(
        "another database is the same one",
        "where the cluster or the database is another one, commits may be missing",
        "busway/store/postgres/loss.py",
        '    return 1 if row.lineage not in ("", lineage) and not is_known else 0\n',
        "    return 0\n",
        (f"{_RESTORES}::test_an_old_dump_is_noticed[data directory lost]",),
    ),
    Fault(
        "no number leaps",
        "after a loss no sequence number is given out a second time",
        "busway/broker/namespace/lost_commits.py",
        "            counters.last_counter = min(counters.last_counter + NUMBERS_LEAP, last)\n",
        "",
        (f"{_RESTORES}::test_a_restore_while_the_server_is_away_is_noticed_by_its_note",),
    ),
    Fault(
        "whoever stands still in a commit keeps the store",
        "the first half of a pipeline holds a store no longer than a second",
        "busway/store/postgres/committer.py",
        "                if error.sqlstate == _LOCKED_STATE:\n",
        "                if error.sqlstate is None:\n",
        (f"{_ENDS}::test_a_client_that_stopped_in_the_middle_of_its_commit_holds_a_store_for_a_second",),
    ),
    Fault(
        "marks forgotten",
        "what arrived from another store is marked with its arrival",
        "busway/store/postgres/commit_part.py",
        "        if batch.transfer_marks:\n",
        "        if batch.transfer_marks and not batch.puts:\n",
        (f"{_MARKS}::test_marks_are_kept_with_their_puts_over_a_restart[postgres]",),
    ),
    Fault(
        "a plan for an empty table",
        "rows are found by their keys, whatever a plan believed",
        "busway/store/postgres/queries.sql",
        "    WHERE counters.fragment = ANY(ARRAY[given.fragment]) AND counters.version = given.version\n",
        "    WHERE counters.fragment = given.fragment AND counters.version = given.version\n",
        (
            "tests/store_contract/test_postgres_plans.py::test_no_statement_walks_over_a_table[counters_write]",
        ),
    ),
    Fault(
        "a session is taken for a new one",
        "a session begins with its first row",
        "busway/store/postgres/known_sessions.py",
        "                found.append((key, session_id, int(has_rows is False)))\n",
        "                found.append((key, session_id, 1))\n",
        ("tests/store_contract/test_session.py", "tests/store_contract/test_equivalence.py"),
    ),
)
