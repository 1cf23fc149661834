"""What an entity's row says of rows that may lie in another store (`transfers`)."""

from dataclasses import dataclass

from busway.store.contract import FragmentKey


@dataclass(frozen=True)
class Doubt:
    """Forwarding was removed or moved while rows of a fragment, up to this number, may have lain in another store. As
    long as that store has not been read nobody may have them (`transfers`), also in lives of the process to come."""

    store_name: str
    fragment: FragmentKey
    number: int
    gone_to: str
