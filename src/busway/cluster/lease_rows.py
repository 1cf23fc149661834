"""What nodes write and read about one another in a database: one connection, each call one round trip.

Beats need not be on the disk before they count: a database that loses some at a crash ends every connection, and
who watches begins anew on the next one. So they cost no fsync. What changes owners waits for the disk as commits do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import psycopg
from psycopg import pq

from busway.clock import Clock
from busway.store.contract import StoreError
from busway.store.postgres.batch_arrays import bigint, bigints, column_of, integer
from busway.store.postgres.server_checks import connect
from busway.store.postgres.url import PostgresUrl
from busway.store.postgres.writing_connection import (
    COMMIT,
    AnswerLost,
    Statement,
    StatementRefused,
    WritingConnection,
)

_BEGIN: Final[Statement] = ("BEGIN", ())
_COMMIT: Final[Statement] = (COMMIT, ())
_NO_WAIT: Final[Statement] = ("SELECT set_config('synchronous_commit', 'off', true)", ())
_BEAT: Final = """
UPDATE busway.members SET beat = beat + 1, beaten_at = clock_timestamp(), draining = $2::integer = 1
WHERE incarnation = $1::bytea"""
_LEASES: Final[Statement] = ("SELECT store, holder FROM busway.leases ORDER BY store", ())
_MEMBERS: Final[Statement] = (
    """
SELECT
    node, incarnation, beat, address, version, weight, draining::integer,
    (extract(EPOCH FROM clock_timestamp() - beaten_at) * 1000)::bigint,
    (extract(EPOCH FROM clock_timestamp() - started_at) * 1000)::bigint, lease_ms
FROM busway.members ORDER BY node""",
    (),
)
_JOIN: Final = """
INSERT INTO busway.members
    (node, incarnation, beat, beaten_at, started_at, lease_ms, address, version, weight, draining)
VALUES (
    convert_from($1::bytea, 'UTF8'), $2::bytea, 0, clock_timestamp(), clock_timestamp(), $6::bigint,
    convert_from($3::bytea, 'UTF8'), convert_from($4::bytea, 'UTF8'), $5::integer, false
)
ON CONFLICT DO NOTHING"""
#: In its place, while it is as it was seen.
_DISPLACE: Final = "DELETE FROM busway.members WHERE incarnation = $1::bytea AND beat = $2::bigint"
#: Of nodes that nobody has heard of for a day, and that have nothing.
_FORGET: Final[Statement] = (
    """
DELETE FROM busway.members
WHERE beaten_at < clock_timestamp() - INTERVAL '1 day'
    AND NOT EXISTS (SELECT FROM busway.leases WHERE leases.holder = members.incarnation)""",
    (),
)
_TAKE: Final = "SELECT busway.take_stores($1, $2, $3, $4, $5)"
_RELEASE: Final = "UPDATE busway.leases SET holder = NULL WHERE holder = $1::bytea"
_LEAVE: Final = "DELETE FROM busway.members WHERE incarnation = $1::bytea"

_BIGINT: Final = Struct(">q")


class DatabaseSilent(Exception):
    """The database did not answer, or not with what was asked for: what was asked may have been done or not."""


@dataclass(frozen=True)
class Member:
    """What a node says of itself."""

    node: str
    incarnation: bytes
    address: str
    version: str
    #: For how long it believes in its stores.
    lease_s: float
    weight: int = 1


@dataclass(frozen=True)
class MemberRow(Member):
    """And how it does."""

    beat: int = 0
    is_draining: bool = False
    #: For people, by the database's clock.
    silent_ms: int = 0
    up_ms: int = 0


@dataclass(frozen=True)
class Seen:
    """What a round showed."""

    #: We are still a member.
    is_member: bool
    #: Store → incarnation of its holder.
    holders: Mapping[int, bytes | None]
    members: Sequence[MemberRow]

    def owned_by(self, incarnation: bytes) -> list[int]:
        return [store for store, holder in self.holders.items() if holder == incarnation]


class LeaseRows:
    """Used by one thread. Every call may raise DatabaseSilent, and the connection is of no use then."""

    def __init__(self, url: PostgresUrl, clock: Clock, answer_s: float) -> None:
        """Raises StoreError."""
        connection = connect(url)
        try:
            self._connection = WritingConnection(connection, clock)
        except psycopg.Error as error:
            connection.close()
            raise StoreError(str(error)) from error
        self._clock = clock
        self._answer_s = answer_s

    def close(self) -> None:
        self._connection.close()

    def _run(self, statements: Sequence[Statement]) -> list[pq.abc.PGresult]:
        try:
            return self._connection.run(statements, self._clock.monotonic() + self._answer_s)
        except (AnswerLost, StatementRefused) as error:
            raise DatabaseSilent(str(error)) from error

    def beat(self, incarnation: bytes, *, is_draining: bool = False) -> Seen:
        """We live; and what there is. Leases are read after the beat: whoever takes them from us holds our row."""
        values = (incarnation, integer(int(is_draining)))
        _, _, beaten, leases, members, _ = self._run(
            [_BEGIN, _NO_WAIT, (_BEAT, values), _LEASES, _MEMBERS, _COMMIT]
        )
        return _sight(beaten.command_tuples == 1, leases, members)

    def look(self) -> Seen:
        """The same without a beat, for one that is no member yet."""
        leases, members = self._run([_LEASES, _MEMBERS])
        return _sight(False, leases, members)

    def join(self, member: Member, displaced: tuple[bytes, int] | None) -> bool:
        """Enters a node; `displaced`: in the place of this incarnation, whose beat is still that. False: somebody
        of this name is there."""
        values = (
            member.node.encode(),
            member.incarnation,
            member.address.encode(),
            member.version.encode(),
            integer(member.weight),
            bigint(round(member.lease_s * 1000)),
        )
        displacing: list[Statement] = []
        if displaced is not None:
            displacing = [(_DISPLACE, (displaced[0], bigint(displaced[1])))]
        results = self._run([_BEGIN, *displacing, (_JOIN, values), _FORGET, _COMMIT])
        return results[1 + len(displacing)].command_tuples == 1

    def take(
        self,
        stores: Sequence[int],
        incarnation: bytes,
        silent: Mapping[bytes, int],
        gone: Collection[bytes],
    ) -> bool:
        """All of them are ours, or nothing has changed. `silent`: members, each with the beat that was seen."""
        values = (
            incarnation,
            column_of("integer", list(stores)),
            column_of("bytea", list(silent)),
            bigints(list(silent.values())),
            column_of("bytea", list(gone)),
        )
        _, taken, _ = self._run([_BEGIN, (_TAKE, values), _COMMIT])
        return taken.get_value(0, 0) == b"\x01"

    def release(self, incarnation: bytes, *, leaves: bool) -> None:
        """Our stores are free. `leaves`: and we are a member no more."""
        leaving: list[Statement] = [(_LEAVE, (incarnation,))] if leaves else []
        self._run([_BEGIN, (_RELEASE, (incarnation,)), *leaving, _COMMIT])


def _sight(is_member: bool, leases: pq.abc.PGresult, members: pq.abc.PGresult) -> Seen:
    holders = {_integer(leases, row, 0): leases.get_value(row, 1) for row in range(leases.ntuples)}
    return Seen(is_member, holders, [_member(members, row) for row in range(members.ntuples)])


def _member(rows: pq.abc.PGresult, row: int) -> MemberRow:
    return MemberRow(
        node=_text(rows, row, 0),
        incarnation=rows.get_value(row, 1) or b"",
        beat=_bigint(rows, row, 2),
        address=_text(rows, row, 3),
        version=_text(rows, row, 4),
        lease_s=_bigint(rows, row, 9) / 1000,
        weight=_integer(rows, row, 5),
        is_draining=_integer(rows, row, 6) == 1,
        silent_ms=_bigint(rows, row, 7),
        up_ms=_bigint(rows, row, 8),
    )


def _text(rows: pq.abc.PGresult, row: int, column: int) -> str:
    return (rows.get_value(row, column) or b"").decode()


def _integer(rows: pq.abc.PGresult, row: int, column: int) -> int:
    return int.from_bytes(rows.get_value(row, column) or b"", "big", signed=True)


def _bigint(rows: pq.abc.PGresult, row: int, column: int) -> int:
    found: int = _BIGINT.unpack(rows.get_value(row, column) or bytes(8))[0]
    return found
