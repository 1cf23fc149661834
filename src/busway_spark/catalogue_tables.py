"""Tables in a catalogue of Spark: `CREATE TABLE clicks USING eventhubs`.

Theory of operation. When a table is made, Spark asks the source for its columns, with options of its own among those
of the statement. To a query of the table it hands none of them, only those that the query itself brings:

    SELECT * FROM clicks WITH (connection 'prod', name 'clicks')

So a definition is asked for nothing but columns and needs no bus. One that brings a key is refused: the catalogue
would keep it, for everybody who may look there, and nobody would use it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

#: Comes among the options of a table's definition, and nowhere else.
_MARK: Final = "provider"
_KEY: Final = "connectionstring"
#: Spark tells each option twice.
_TWICE: Final = "option."
KEY_REFUSED: Final = (
    "a table in the catalogue would keep the key. Leave it out and name a connection in each query: SELECT … FROM"
    " table WITH (connection 'prod', …); or use CREATE TEMPORARY VIEW … USING … OPTIONS (…), or spark.read."
)
MISSING: Final = (
    "missing. Give it, or `connection` with a name that is known where the query is planned. A table in the"
    " catalogue gets options only with each query: SELECT … FROM table WITH (connection 'prod', …)."
)
#: Stands where a definition has none.
NOWHERE: Final = "Endpoint=sb://nowhere.invalid;SharedAccessKeyName=none;SharedAccessKey=none;EntityPath=none"


class KeyInTable(ValueError):
    """The definition of a table brings a connection string."""


def of_definition(given: Mapping[str, str], known: Collection[str], prefix: str) -> dict[str, str] | None:
    """The options of a table's definition that shape its columns; None for anything but a definition. `known` are
    names in lower case. Raises KeyInTable."""
    lower = {key.lower().removeprefix(_TWICE).removeprefix(prefix): value for key, value in given.items()}
    if _MARK not in {key.lower() for key in given}:
        return None
    if _KEY in lower:
        raise KeyInTable(KEY_REFUSED)
    shaping = {key: value for key, value in lower.items() if key in known and key != "connection"}
    return {**shaping, _KEY: NOWHERE}
