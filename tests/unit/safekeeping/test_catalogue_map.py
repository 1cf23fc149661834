"""Names of stores and keys of fragments become others, wherever a catalogue has them."""

from __future__ import annotations

import json

import pytest

from busway.broker.namespace.catalogue_rows import EntityRow, Share, StoreRow
from busway.safekeeping.catalogue_map import CatalogueMap, NewHome
from busway.staging.decisions import Decision
from busway.staging.stage_table import read_note
from busway.store.contract import Counters, FragmentKey, StoreError

OLD_0, OLD_1, NEW_0, NEW_1 = "store-0", "store-1", "east-0", "east-1"


@pytest.fixture
def mapped() -> CatalogueMap:
    zero = {key: FragmentKey(key + 100) for key in (1, 2, 3)}
    one = {key: FragmentKey(key + 200) for key in (1, 2, 3)}
    return CatalogueMap({OLD_0: NewHome(NEW_0, "db:0", zero), OLD_1: NewHome(NEW_1, "db:1", one)})


def plain(store: str, main: int, dead_letter: int, **more: object) -> str:
    return json.dumps(
        {
            "format": 1,
            "description": {"path": "orders"},
            "incarnation": 4,
            "store": store,
            "main": main,
            "dead_letter": dead_letter,
            "of_tomorrow": "kept",
            **more,
        }
    )


def test_an_entity_names_its_fragments_by_their_new_keys(mapped: CatalogueMap) -> None:
    """Copy: store, fragment and dead letters; what this version does not know stays."""
    [(key, text)] = mapped.rows({"queue:orders": plain(OLD_1, 2, 3)}).items()
    row = EntityRow.parse(key, text)
    assert row.shares == (Share(NEW_1, FragmentKey(202), FragmentKey(203)),)
    assert json.loads(text)["of_tomorrow"] == "kept"


def test_a_topic_has_no_dead_letters_afterwards_either(mapped: CatalogueMap) -> None:
    """D-7: the key that no fragment bears is no fragment's."""
    [(key, text)] = mapped.rows({"topic:news": plain(OLD_0, 1, 0)}).items()
    assert EntityRow.parse(key, text).shares == (Share(NEW_0, FragmentKey(101), FragmentKey(0)),)


def test_a_partitioned_entity_has_its_shares_in_their_order(mapped: CatalogueMap) -> None:
    """M-36: the place in the list is the index that numbers and lock tokens bear."""
    shares = [
        {"store": OLD_0, "main": 1, "dead_letter": 2},
        {"store": OLD_1, "main": 1, "dead_letter": 3},
    ]
    text = json.dumps({"format": 2, "description": {"path": "parts"}, "incarnation": 1, "shares": shares})
    [(key, found)] = mapped.rows({"queue:parts": text}).items()
    assert EntityRow.parse(key, found).shares == (
        Share(NEW_0, FragmentKey(101), FragmentKey(102)),
        Share(NEW_1, FragmentKey(201), FragmentKey(203)),
    )


def test_doubts_follow_their_fragments(mapped: CatalogueMap) -> None:
    """F-12: what may have arrived elsewhere; a doubt about a fragment that is gone goes too."""
    doubts = [[OLD_0, 1, 7, OLD_1], [OLD_0, 99, 7, OLD_1]]
    [(key, text)] = mapped.rows({"queue:orders": plain(OLD_0, 1, 2, doubts=doubts)}).items()
    [doubt] = EntityRow.parse(key, text).doubts
    assert (doubt.store_name, doubt.fragment, doubt.number, doubt.gone_to) == (NEW_0, 101, 7, NEW_1)


def test_stores_get_their_names_and_addresses_and_stay_out_of_service(mapped: CatalogueMap) -> None:
    """Copy: position and state stay; so does how far a store's decided rules are taken over."""
    rows = {
        "store:store-1": StoreRow(OLD_1, "sqlite:old.db", 1, is_disabled=True).text(None),
        "rules-taken-over:store-1": '{"format":1,"number":5}',
    }
    found = mapped.rows(rows)
    assert StoreRow.parse("store:east-1", found["store:east-1"]) == StoreRow(NEW_1, "db:1", 1, True)
    assert found["rules-taken-over:east-1"] == rows["rules-taken-over:store-1"]


def test_a_hub_finds_its_logs(mapped: CatalogueMap) -> None:
    """H-1: by partition."""
    logs = [{"store": OLD_1, "log": 3}, {"store": OLD_0, "log": 2}]
    description = {"Name": "metrics", "PartitionCount": 2}
    text = json.dumps({"format": 1, "description": description, "logs": logs, "incarnation": 2})
    found = json.loads(mapped.rows({"eventhub:metrics": text})["eventhub:metrics"])
    assert found["logs"] == [{"store": NEW_1, "log": 203}, {"store": NEW_0, "log": 102}]


def test_stages_and_decisions_are_those_of_the_same_rows(mapped: CatalogueMap) -> None:
    """S-9: the logs of a stage, where their rows go, and the stores that are still to publish."""
    entities = [{"row": "queue:orders", "path": "orders", "incarnation": 4, "logs": [[0, 1, 2], [1, 99, 3]]}]
    note = {"format": 1, "write": "w", "batch": 0, "kind": "write", "part": 0, "loose": -1, "at_ms": 5}
    decision = {
        "format": 1,
        "batch": 0,
        "kind": "write",
        "at_ms": 5,
        "stages": {"s": [OLD_0, OLD_1]},
        "entities": ["orders"],
        "published_ms": 0,
    }
    found = mapped.notes(
        OLD_1,
        {
            "stage:s": json.dumps({**note, "entities": entities}),
            "decision:w": json.dumps(decision),
            "decided-rules": "as it is",
        },
    )
    _, read = read_note(
        "stage:s", found["stage:s"], {FragmentKey(202): Counters(), FragmentKey(203): Counters()}
    )
    assert [(log.index, log.target, log.key) for log in read.logs] == [(0, 201, 202), (1, 0, 203)]
    assert Decision.parse("decision:w", found["decision:w"]).stages == {"s": [NEW_0, NEW_1]}
    assert found["decided-rules"] == "as it is"


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("queue:orders", plain(OLD_0, 77, 2), "names a fragment that is not there"),
        ("queue:orders", plain("store-9", 1, 2), "names the store store-9"),
        ("saga:orders", '{"format":1}', "does not know"),
    ],
)
def test_what_nobody_could_find_is_refused(mapped: CatalogueMap, key: str, text: str, said: str) -> None:
    """Refused: a fragment or a store that is not there, a row of a later version."""
    with pytest.raises(StoreError, match=said):
        mapped.rows({key: text})
