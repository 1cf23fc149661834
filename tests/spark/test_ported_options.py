"""Options of jobs that come from elsewhere: positions, connection strings, names of connections, tables of SQL."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo

from busway_spark.eventhubs.offsets import GivenPosition
from busway_spark.eventhubs.options import BadOption, EventHubsOptions
from busway_spark.eventhubs.reader import EventHubsReader
from busway_spark.servicebus.options import WrongOption, read_options
from busway_spark.start.session import _settings_of
from pyspark_eventhubs import DefaultSource as EventHubs
from pyspark_servicebus import DefaultSource as ServiceBus

SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
CONNECTION = f"Endpoint=sb://localhost:5672;SharedAccessKeyName=k;SharedAccessKey={SECRET};EntityPath=e"


def parse(**given: str) -> EventHubsOptions:
    return EventHubsOptions.parse({"connectionString": CONNECTION, **given})


def test_a_position_includes_its_event_unless_it_says_otherwise() -> None:
    """H-22: as in azure-event-hubs-spark, whose jobs often leave `isInclusive` out."""
    assert GivenPosition.of_json({"seqNo": 5}).is_inclusive
    assert GivenPosition.of_json({"offset": "14"}).is_inclusive
    assert not GivenPosition.of_json({"offset": "14", "isInclusive": False}).is_inclusive
    with pytest.raises(ValueError, match="isInclusive"):
        GivenPosition.of_json({"offset": "14", "isInclusive": "no"})


def test_an_encrypted_connection_string_is_refused_with_what_to_do() -> None:
    """Ported jobs: only the connector itself can read what EventHubsUtils.encrypt has made."""
    encrypted = base64.b64encode(bytes(range(208))).decode()
    with pytest.raises(BadOption, match=r"EventHubsUtils\.encrypt") as caught:
        EventHubsOptions.parse({"eventhubs.connectionString": encrypted, "name": "h"})
    with pytest.raises(WrongOption, match=r"EventHubsUtils\.encrypt"):
        read_options({"connectionString": encrypted, "queue": "q"})
    assert encrypted[:20] not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"eventhubs.useAadAuth": "true"},
        {"eventhubs.aadAuthCallback": "my.Callback"},
        {"connectionString": "Endpoint=sb://x;EntityPath=h;Authentication=Managed Identity"},
    ],
)
def test_signing_in_by_entra_id_is_refused_in_a_sentence(given: dict[str, str]) -> None:
    """Ported jobs: and one that says that it does not want it runs."""
    with pytest.raises(BadOption, match="Microsoft Entra ID is not supported"):
        EventHubsOptions.parse({"connectionString": CONNECTION, **given})
    assert parse(**{"eventhubs.useAadAuth": "false", "maxRatesPerPartition": "{}"}).hub == "e"


# -- names of connections


def test_a_connection_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL clients: in the environment first, then in the file; the key is nowhere in the query."""
    file = tmp_path / "connections.toml"
    file.write_text(f'[prod]\nconnectionString = "{CONNECTION}"\n["eu-west.1"]\nconnectionString = "x"\n')
    monkeypatch.setenv("BUSWAY_CONNECTIONS", str(file))
    monkeypatch.setenv("BUSWAY_CONNECTION_EU_WEST_1", CONNECTION.replace("EntityPath=e", "EntityPath=west"))
    assert EventHubsOptions.parse({"connection": "prod"}).hub == "e"
    assert EventHubsOptions.parse({"eventhubs.Connection": "eu-west.1"}).hub == "west"
    assert read_options({"connection": "prod", "queue": "q"}).bus.connection_string == CONNECTION
    assert SECRET not in repr(read_options({"connection": "prod"}))


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("", "prod", "BUSWAY_CONNECTION_PROD"),
        ('[other]\nconnectionString = "x"', "prod", "It knows other"),
        ("[prod]", "prod", "must have connectionString"),
        (f'[prod]\nconnectionString = "{CONNECTION}"\nkey = 1', "prod", "nothing else"),
        (f"[prod]\nconnectionString = {SECRET}", "prod", "no TOML"),
        ("", "../etc/passwd", "a name has letters"),
        ("", "x" * 65, "a name has letters"),
        ("#" * (1 << 20) + "\n\n", "prod", "larger than"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, sentence: str
) -> None:
    """SQL clients: which variable and which file were looked at; never what is in them."""
    file = tmp_path / "connections.toml"
    file.write_text(text)
    monkeypatch.setenv("BUSWAY_CONNECTIONS", str(file))
    with pytest.raises(BadOption, match=sentence) as caught:
        EventHubsOptions.parse({"connection": name, "name": "h"})
    with pytest.raises(WrongOption, match=sentence):
        read_options({"connection": name, "queue": "q"})
    assert SECRET not in str(caught.value)
    file.unlink()
    with pytest.raises(BadOption, match=r"cannot be read|a name has letters"):
        EventHubsOptions.parse({"connection": name, "name": "h"})


def test_a_name_and_a_string_are_not_given_together() -> None:
    """SQL clients: which of them would count?"""
    with pytest.raises(BadOption, match="only one of connection and connectionString"):
        parse(connection="prod")
    with pytest.raises(WrongOption, match="cannot stand beside"):
        read_options({"connectionString": CONNECTION, "connection": "prod"})


# -- tables


@pytest.mark.parametrize("source", [EventHubs, ServiceBus])
def test_a_table_needs_no_bus_and_takes_no_key(source: type[EventHubs] | type[ServiceBus]) -> None:
    """CREATE TABLE: Spark asks for columns, with words of its own among the options, and keeps what it was given."""
    of_spark = {"provider": source.name(), "owner": "me", "option.connection": "prod", "connection": "prod"}
    assert "sequenceNumber" in source(dict(of_spark)).schema().names
    for name in ("connectionString", f"option.{source.name()}.connectionString"):
        with pytest.raises(ValueError, match="would keep the key"):
            source({**of_spark, name: CONNECTION})
    with pytest.raises(ValueError, match=r"WITH \(connection 'prod'"):
        source({})


# -- sessions


def test_a_session_that_hands_no_filters_down_can_read() -> None:
    """filterPushdown.enabled=false: Spark refuses readers that have a method of their own for filters."""
    reader = EventHubsReader(parse())
    taken = reader.pushFilters
    assert getattr(taken, "__func__", None) is DataSourceReader.pushFilters
    wanted = EqualTo(("partition",), "1")
    assert list(taken([wanted])) == [wanted]
    again = pickle.loads(pickle.dumps(reader))
    assert again._bounds.partitions == {"1"}
    untaken = EventHubsReader(parse(filterPushdown="false"))
    assert list(untaken.pushFilters([wanted])) == [wanted]
    assert untaken._bounds.partitions is None


@pytest.mark.parametrize(
    ("master", "is_off"),
    [("local[2]", True), ("local", True), ("spark://host:7077", False), ("yarn", False), ("k8s://x", False)],
)
def test_pages_of_spark_are_there_on_clusters(master: str, is_off: bool) -> None:
    """Spark's UI: a program of one process has none, a cluster keeps its own setting."""
    assert ("spark.ui.enabled" in _settings_of(master)) is is_off
