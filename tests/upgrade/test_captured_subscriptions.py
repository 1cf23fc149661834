"""Subscriptions that history is captured through, as earlier versions wrote them down: by words in their metadata."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from busway.broker.namespace.catalogue_rows import EntityRow, Share
from busway.broker.namespace.namespace import Namespace
from busway.model.descriptions import NewEntity, SubscriptionDescription
from busway.rules.rule import Rule, SqlFilter
from busway.store.contract import FragmentKey, StoreTooNew
from tests.upgrade.old_store import CATALOGUES, on_an_old_store

OLD = (CATALOGUES / "capture_in_words.sql").read_text()
CAPTURE = "orders/Subscriptions/busway-capture"
AUDIT = "orders/Subscriptions/audit"
#: As capture jobs of all versions write it.
SENTENCE = "Messages of this subscription are taken by busway pipeline capture."
#: What the last version without the property can read.
LAST_FORMAT = 2


def captured(namespace: Namespace, path: str = CAPTURE) -> SubscriptionDescription:
    found = namespace.description(path)
    assert isinstance(found, SubscriptionDescription)
    return found


def format_of(namespace: Namespace, path: str = CAPTURE) -> object:
    return json.loads(namespace.contents.catalogue.rows[f"subscription:{path.lower()}"])["format"]


def test_a_captured_subscription_of_an_earlier_version_has_the_property(tmp_path: Path) -> None:
    """E-70: its words mean the property; metadata and what rules have noted are as they were."""

    async def live(namespace: Namespace) -> None:
        assert captured(namespace).captures_history
        assert captured(namespace).user_metadata == SENTENCE
        assert not captured(namespace, AUDIT).captures_history
        await namespace.rules.add(AUDIT, Rule("late", SqlFilter("1=1")))
        assert namespace.rules.beginnings(AUDIT)["rules"] == [
            {"name": "$Default", "began": {"busway-capture": [2]}},
            {"name": "paid", "began": {"busway-capture": [3]}},
            {"name": "late", "began": {"busway-capture": [3]}},
        ]

    on_an_old_store(tmp_path, OLD, live, lambda namespace: _nothing_is_lost(namespace))


async def _nothing_is_lost(namespace: Namespace) -> None:
    assert namespace.rules.beginnings(AUDIT)["captured"] == {
        "busway-capture": {"createdAtMs": 1_700_000_000_000, "lastNumbers": (3,)}
    }


def test_the_property_stays_when_the_words_go_and_then_earlier_versions_refuse_the_row(
    tmp_path: Path,
) -> None:
    """E-44, E-70: with the words a row is one that they read and understand; without, they would miss rules."""

    async def rewrite(namespace: Namespace) -> None:
        await namespace.update(replace(captured(namespace), max_delivery_count=7))
        assert format_of(namespace) <= LAST_FORMAT
        await namespace.update(replace(captured(namespace), user_metadata="ours"))
        assert format_of(namespace) > LAST_FORMAT

    async def look(namespace: Namespace) -> None:
        assert captured(namespace).captures_history
        assert captured(namespace).user_metadata == "ours"
        await namespace.update(replace(captured(namespace), captures_history=False))
        assert format_of(namespace) <= LAST_FORMAT
        assert namespace.rules.beginnings(AUDIT)["captured"] == {}

    async def look_again(namespace: Namespace) -> None:
        assert not captured(namespace).captures_history

    on_an_old_store(tmp_path, OLD, rewrite, look, look_again)


def test_a_capture_job_of_an_earlier_version_is_understood(tmp_path: Path) -> None:
    """E-70: it makes its subscription with nothing but the words; an update may bring them too."""

    async def live(namespace: Namespace) -> None:
        other = replace(captured(namespace), path="orders/Subscriptions/other")
        plain = SubscriptionDescription("orders/Subscriptions/plain")
        words = SubscriptionDescription("orders/Subscriptions/words", user_metadata=SENTENCE)
        await namespace.create([NewEntity(words), NewEntity(plain), NewEntity(other)])
        assert captured(namespace, words.path).captures_history
        assert format_of(namespace, words.path) <= LAST_FORMAT
        await namespace.update(replace(plain, user_metadata=f"x {SENTENCE}"))
        assert captured(namespace, plain.path).captures_history
        found = namespace.rules.beginnings(AUDIT)["captured"]
        assert isinstance(found, dict)
        assert sorted(found) == ["busway-capture", "other", "plain", "words"]

    on_an_old_store(tmp_path, OLD, live)


@pytest.mark.parametrize("count", [1, 4])
def test_a_captured_row_without_the_words_comes_back_as_it_was(count: int) -> None:
    """E-70, P-9: in one fragment or in several; only subscriptions may have that format."""
    shares = tuple(Share("store-0", FragmentKey(2 * n + 1), FragmentKey(2 * n + 2)) for n in range(count))
    description = SubscriptionDescription(CAPTURE, captures_history=True)
    row = EntityRow(CAPTURE.lower(), description, shares, count > 1, 41)
    text = row.text(None)
    assert EntityRow.parse(row.row_key, text) == row
    with pytest.raises(StoreTooNew):
        EntityRow.parse("topic:orders", text)


def test_an_element_that_an_earlier_version_kept_for_a_client_is_not_told_twice() -> None:
    """E-44: a newer job on an older server left the property there as an element that nobody knew."""
    share = Share("store-0", FragmentKey(1), FragmentKey(2))
    description = SubscriptionDescription(CAPTURE, user_metadata=SENTENCE)
    data = json.loads(EntityRow(CAPTURE.lower(), description, (share,), False, 41).text(None))
    del data["description"]["CapturesHistory"]
    strange = '<ns0:Strange xmlns:ns0="x">1</ns0:Strange>'
    data["description"]["UnknownElements"] = [
        strange,
        '<ns0:CapturesHistory xmlns:ns0="y">true</ns0:CapturesHistory>',
    ]
    found = EntityRow.parse(f"subscription:{CAPTURE.lower()}", json.dumps(data)).description
    assert isinstance(found, SubscriptionDescription)
    assert (found.captures_history, found.unknown_elements) == (True, (strange,))
