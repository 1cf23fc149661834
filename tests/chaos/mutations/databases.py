"""What keeps a server from a database that breaks its promises, taken away one by one."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutations.fault import Fault

_CHECKS: Final = "tests/unit/store/test_postgres_server_checks.py"

DATABASES: Final = (
    Fault(
        "a weaker commit is left as it is",
        "every session is told what a promise rests on",
        "busway/store/postgres/server_checks.sql",
        "        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),\n",
        "        WHEN 'remote_apply' THEN 'remote_apply' ELSE current_setting('synchronous_commit') END, false),\n",
        (f"{_CHECKS}::test_every_session_is_told_what_a_promise_rests_on",),
    ),
    Fault(
        "fsync is not looked at",
        "a server that may lose commits is refused",
        "busway/store/postgres/server_checks.py",
        '    for setting in ("fsync", "full_page_writes"):\n',
        '    for setting in ("full_page_writes",):\n',
        (f"{_CHECKS}::test_a_server_that_may_lose_commits_is_refused",),
    ),
    Fault(
        "an unknown error is certain",
        "refused promises that nothing is stored",
        "busway/store/postgres/sqlstates.py",
        "CLASSES.get(sqlstate[:2], Meaning.AGAIN)\n",
        "CLASSES.get(sqlstate[:2], Meaning.REFUSED)\n",
        ("tests/unit/store/test_postgres_sqlstates.py",),
    ),
    Fault(
        "a password on the command line",
        "everybody on the machine can read a command line",
        "busway/store/postgres/url.py",
        "    if is_argument and not _SECRETS.isdisjoint(options):\n",
        "    if not is_argument and not _SECRETS.isdisjoint(()):\n",
        ("tests/unit/cli/test_store_addresses.py::test_a_password_in_an_argument_is_refused",),
    ),
    Fault(
        "stores first, databases second",
        "P-1: fragments are spread over databases first",
        "busway/broker/namespace/entity_creation.py",
        "    in_turn = _by_database(stores)\n",
        "    in_turn = list(stores)\n",
        ("tests/unit/broker/test_placement.py",),
    ),
    Fault(
        "a taken store is opened again by itself",
        "two servers do not take a store from each other for ever",
        "busway/broker/store_keeper.py",
        "        if self.is_taken:\n            return\n",
        "",
        ("tests/unit/broker/test_namespace_stores.py",),
    ),
)
