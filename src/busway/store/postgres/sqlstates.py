"""What an error of PostgreSQL means for the batch that met it.

REFUSED is a promise: nothing of the batch is stored, and the same batch would be refused again. So the statement or
its values must be at fault. What may come from the condition of the server is AGAIN: then the fence row is asked,
which tells what became of the batch, and whoever asks cannot be wrong. So an unknown code is AGAIN, too.

The table goes by class, the first two characters of a code; single codes of a class that mean something else stand
beside it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Meaning(Enum):
    REFUSED = "refused"  # certain: the batch itself is at fault
    FENCED = "fenced"  # another owner has the store
    AGAIN = (
        "again"  # look at the fence row, on a new connection where this one is gone, then perhaps send again
    )
    FULL = "full"  # no room on the server's disk: new messages are refused for a while, settling goes on
    LATER = "later"  # nobody gets in, until somebody changes something: opened again later


#: What the function that guards every commit raises.
FENCED_STATE: Final = "BW001"

CLASSES: Final = {
    "00": Meaning.AGAIN,  # success: nothing that is an error
    "01": Meaning.AGAIN,  # a warning at COMMIT: the wait for a standby was cut short
    "02": Meaning.REFUSED,  # no data
    "03": Meaning.REFUSED,  # SQL statement not yet complete
    "08": Meaning.AGAIN,  # connection exception
    "09": Meaning.REFUSED,  # triggered action
    "0A": Meaning.REFUSED,  # feature not supported
    "0B": Meaning.REFUSED,  # invalid transaction initiation
    "0F": Meaning.REFUSED,  # locator
    "0L": Meaning.REFUSED,  # invalid grantor
    "0P": Meaning.REFUSED,  # invalid role specification
    "0Z": Meaning.REFUSED,  # diagnostics
    "10": Meaning.REFUSED,  # XQuery
    "20": Meaning.REFUSED,  # case not found
    "21": Meaning.REFUSED,  # cardinality violation
    "22": Meaning.REFUSED,  # data
    "23": Meaning.REFUSED,  # integrity constraint
    "24": Meaning.REFUSED,  # invalid cursor state
    "25": Meaning.REFUSED,  # invalid transaction state
    "26": Meaning.AGAIN,  # a prepared statement is gone: a pooler gave us another session
    "27": Meaning.REFUSED,  # triggered data change
    "28": Meaning.LATER,  # invalid authorization
    "2B": Meaning.REFUSED,  # dependent privileges
    "2D": Meaning.REFUSED,  # invalid transaction termination
    "2F": Meaning.REFUSED,  # SQL routine
    "34": Meaning.REFUSED,  # invalid cursor name
    "38": Meaning.REFUSED,  # external routine
    "39": Meaning.REFUSED,  # external routine invocation
    "3B": Meaning.REFUSED,  # savepoint
    "3D": Meaning.LATER,  # no such database
    "3F": Meaning.REFUSED,  # invalid schema name
    "40": Meaning.AGAIN,  # transaction rollback: serialization, deadlock
    "42": Meaning.REFUSED,  # syntax or access rule
    "44": Meaning.REFUSED,  # WITH CHECK OPTION
    "53": Meaning.AGAIN,  # insufficient resources
    "54": Meaning.REFUSED,  # program limit exceeded
    "55": Meaning.AGAIN,  # object not in prerequisite state: a lock that was waited for long enough
    "57": Meaning.AGAIN,  # operator intervention: shutdown, start, crash of another backend
    "58": Meaning.AGAIN,  # system error: a disk
    "72": Meaning.AGAIN,  # snapshot too old
    "BW": Meaning.REFUSED,  # our own functions
    "F0": Meaning.LATER,  # configuration file
    "HV": Meaning.REFUSED,  # foreign data
    "P0": Meaning.REFUSED,  # PL/pgSQL
    "XX": Meaning.AGAIN,  # internal error, also in the middle of COMMIT
}

CODES: Final = {
    "25006": Meaning.AGAIN,  # read-only: a primary that became a standby, we are led to the new one
    "25P03": Meaning.AGAIN,  # we stood still between the first statement and COMMIT: rolled back, connection gone
    "25P04": Meaning.AGAIN,  # the same for a transaction as a whole
    "40002": Meaning.REFUSED,  # integrity constraint, found late
    "53100": Meaning.FULL,  # disk full
    "53300": Meaning.LATER,  # too many connections
    "55P02": Meaning.LATER,  # a parameter that we must set cannot be set
    "57P04": Meaning.LATER,  # the database was dropped
    FENCED_STATE: Meaning.FENCED,
}


def meaning_of(sqlstate: str | None) -> Meaning:
    """None: there was no answer."""
    if sqlstate is None:
        return Meaning.AGAIN
    return CODES.get(sqlstate) or CLASSES.get(sqlstate[:2], Meaning.AGAIN)
