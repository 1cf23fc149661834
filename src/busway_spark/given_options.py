"""The options of a query as they were given, for both formats: found by their proper names, checked and read.

Names may have the format's before them ("eventhubs.name") and be written in any case. One that is not known is
refused, so that a misspelt one does not silently do nothing; Spark hands a few of its own to every source. A blank
value is none. Values that may hold a key are never repeated.

Tables in a catalogue of Spark, `CREATE TABLE clicks USING eventhubs`, bring options in two ways. When a table is
made, Spark asks the source for its columns, with options of its own among those of the statement. To a query of the
table it hands none of them, only those that the query itself brings:

    SELECT * FROM clicks WITH (connection 'prod', name 'clicks')

So a definition is asked for nothing but columns and needs no bus. One that brings a key is refused: the catalogue
would keep it, for everybody who may look there, and nobody would use it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from busway_spark.bodies.body_options import BodyOptions, WrongBodyOption, read_body_options
from busway_spark.wire.bus import CONNECTION, Bus, authority_text, find_connection, over_websocket, parsed
from busway_spark.wire.patience import OPERATION_S
from busway_spark.writing.write_names import BATCH_MAX, WRITE_ID_CHARACTERS_MAX

_DURATION: Final = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?", re.IGNORECASE)
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
CONNECTION_STRING: Final = "connectionString"
CA_FILE: Final = "caFile"
TRANSPORT: Final = "transport"
OPERATION_TIMEOUT: Final = "operationTimeout"
WRITE_ID: Final = "writeId"
BATCH_ID: Final = "batchId"
COLUMNS: Final = "columns"
INCLUDE_BODY: Final = "includeBody"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
#: How AMQP travels.
AMQP: Final = "amqp"
WEBSOCKET: Final = "websocket"
NUMBER_MAX: Final = (1 << 63) - 1
#: What Spark itself hands to every source and sink.
_OF_SPARK: Final = frozenset(
    {
        *("path", "checkpointlocation", "queryname", "querytimeout", "outputmode", "serialization.format"),
        *("truncate", "numrows"),
    }
)
_QUOTED_MAX: Final = 60
_NONE: Final[Mapping[str, str]] = {}
#: What a format raises for an option: its name, and a sentence that goes on behind it.
Fault = Callable[[str, str], ValueError]


def seconds_of(text: str) -> float | None:
    """ISO 8601 as azure-event-hubs-spark has it (PT60S), or whole seconds; None for anything else."""
    match = _DURATION.fullmatch(text)
    if match is not None and any(match.groups()):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None


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


class WrongColumns(ValueError):
    """The columns of a query or its rows do not fit the format; the sentence names the first that does not."""


class GivenOptions:
    """Each method that reads one raises the format's fault when its value cannot be used."""

    def __init__(
        self,
        given: Mapping[str, str],
        prefix: str,
        known: Collection[str],
        fault: Fault,
        *,
        taken: Collection[str] = (),
        refused: Mapping[str, str] = _NONE,
    ) -> None:
        """`prefix`: "eventhubs."; `taken`: names that are known too, but that nobody needs to be told of; `refused`:
        by names that are not, what is to be said of them."""
        self.fault = fault
        #: By their proper names, as they were given.
        self.values: dict[str, str] = {}
        by_lower = {name.lower(): name for name in (*known, *taken)}
        try:
            defined = of_definition(given, by_lower, prefix)
        except KeyInTable as error:
            raise fault(CONNECTION_STRING, str(error)) from None
        for key, value in (given if defined is None else defined).items():
            lower = key.lower()
            bare = lower.removeprefix(prefix)
            name = by_lower.get(bare)
            if name is None:
                if bare != lower or lower not in _OF_SPARK:
                    unknown = next((each for each in refused if each.lower() == bare), key[-len(bare) :])
                    others = f"not known; known are {', '.join(sorted(known))}."
                    raise fault(unknown[:_QUOTED_MAX], refused.get(unknown, others))
            elif self.values.setdefault(name, value) != value:
                raise fault(name, "given twice, with two values.")

    # -- values of one option

    def text(self, name: str) -> str | None:
        return self.values.get(name, "").strip() or None

    def choice(self, name: str, allowed: Collection[str]) -> str | None:
        """As it is written there."""
        value = self.text(name)
        if value is None:
            return None
        found = {each.lower(): each for each in allowed}.get(value.lower())
        if found is None:
            raise self._not_expected(name, f"one of {', '.join(allowed)}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        value = self.choice(name, ("true", "false"))
        return default if value is None else value == "true"

    def whole(self, name: str, least: int = 1, most: int = NUMBER_MAX) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        is_number = value.isascii() and value.isdigit() and len(value) <= len(str(most))
        if not is_number or not least <= int(value) <= most:
            limits = f"of at least {least}" if most == NUMBER_MAX else f"from {least} to {most}"
            raise self._not_expected(name, f"a whole number {limits}")
        return int(value)

    def seconds(self, name: str, default: float, most: float) -> float:
        """A plain number."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0.0 <= number <= most:
            raise self._not_expected(name, f"seconds from 0 to {most:g}")
        return number

    def duration(self, name: str, default: float, most: float | None = None) -> float:
        """PT60S, or whole seconds. 0 is for durations that have a `most`."""
        value = self.text(name)
        number = default if value is None else seconds_of(value)
        if number is None or (number <= 0 if most is None else number > most):
            limit = "" if most is None else f", at most {most:g} seconds,"
            raise self._not_expected(name, f"a duration like PT{default:g}S{limit}")
        return number

    def names(self, name: str) -> tuple[str, ...] | None:
        value = self.text(name)
        return None if value is None else tuple(part.strip() for part in value.split(",") if part.strip())

    def json(self, name: str) -> object:
        """None when it is not given."""
        value = self.text(name)
        if value is None:
            return None
        try:
            found: object = json.loads(value)
        except (ValueError, RecursionError):
            raise self.fault(name, "not JSON.") from None
        return found

    def _not_expected(self, name: str, expected: str) -> ValueError:
        return self.fault(name, f"{expected} is expected, not {self.values.get(name, '')[:_QUOTED_MAX]!r}.")

    # -- what several options say together, the same in both formats

    def bus(self) -> Bus:
        text, ca_file = self._connection()
        try:
            authority = authority_text(self.text(CA_FILE) or ca_file)
        except ValueError as error:
            raise self.fault(CA_FILE, str(error)) from None
        try:
            parsed(text)
        except ValueError as error:
            raise self.fault(CONNECTION_STRING, str(error)) from None
        by_websocket = (self.text(TRANSPORT) or "").lower() == WEBSOCKET
        return Bus(over_websocket(text) if by_websocket else text, authority)

    def _connection(self) -> tuple[str, str | None]:
        """The connection string, and a file with an authority where a named connection has one."""
        text, name = self.text(CONNECTION_STRING), self.text(CONNECTION)
        if name is None:
            if text is None:
                raise self.fault(CONNECTION_STRING, MISSING)
            return text, None
        if text is not None:
            raise self.fault(
                CONNECTION,
                f"it cannot stand beside {CONNECTION_STRING}; only one of {CONNECTION} and {CONNECTION_STRING} can be"
                " given.",
            )
        try:
            found = find_connection(name)
        except ValueError as error:
            raise self.fault(CONNECTION, str(error)) from None
        return found.connection_string, found.ca_file

    def operation_s(self) -> float:
        return self.duration(OPERATION_TIMEOUT, OPERATION_S)

    def bodies(self) -> BodyOptions:
        try:
            return read_body_options(self.text)
        except WrongBodyOption as error:
            raise self.fault(error.option, error.sentence) from None

    def write_id(self) -> str | None:
        value = self.text(WRITE_ID)
        if value is not None and len(value) > WRITE_ID_CHARACTERS_MAX:
            raise self.fault(
                WRITE_ID, f"at most {WRITE_ID_CHARACTERS_MAX} characters are expected, not {len(value)}."
            )
        return value

    def batch_id(self) -> int | None:
        return self.whole(BATCH_ID, 0, BATCH_MAX)
