"""What each error of PostgreSQL means: one table, without holes."""

from __future__ import annotations

import re

import psycopg.errors
import pytest

from busway.store.postgres.sqlstates import CLASSES, CODES, FENCED_STATE, Meaning, meaning_of

#: Every code that PostgreSQL knows, from the list that psycopg made of its sources.
KNOWN = sorted(
    {
        found.sqlstate
        for found in vars(psycopg.errors).values()
        if isinstance(found, type) and issubclass(found, psycopg.Error) and found.sqlstate is not None
    }
)


def test_the_list_that_is_walked_is_postgresqls() -> None:
    """Contract: the next test walks over something."""
    assert len(KNOWN) > 200
    assert {"23505", "40001", "53100", "57P01", "XX000"} <= set(KNOWN)


@pytest.mark.parametrize("code", KNOWN)
def test_every_code_has_a_class_with_a_meaning(code: str) -> None:
    """Contract: no error of the server is met that nobody thought of."""
    assert code[:2] in CLASSES
    assert meaning_of(code) in Meaning


def test_no_row_is_about_a_code_that_there_is_not() -> None:
    """House style: the table has no row that PostgreSQL never says."""
    assert set(CODES) - set(KNOWN) - {FENCED_STATE} == set()
    classes = {code[:2] for code in KNOWN} | {"00", "01", "02", "10", "BW", FENCED_STATE[:2]}
    assert set(CLASSES) - classes == set()


@pytest.mark.parametrize(
    ("codes", "meaning"),
    [
        ("23505 23503 22021 22P02 42P01 42501 54000", Meaning.REFUSED),
        (FENCED_STATE, Meaning.FENCED),
        ("40001 40P01 55P03 57P01 57P02 57P03 08006 08P01 25006 25P03 57014 26000", Meaning.AGAIN),
        ("53100", Meaning.FULL),
        ("53300 28000 28P01 3D000", Meaning.LATER),
    ],
)
def test_what_the_code_means(codes: str, meaning: Meaning) -> None:
    """Contract: refused, fenced, again, full, later."""
    assert {code: meaning_of(code) for code in codes.split()} == dict.fromkeys(codes.split(), meaning)


@pytest.mark.parametrize("code", ["XX000", "XX001", "58030", "01000", "99999", "CR000", "53200"])
def test_what_may_come_from_the_servers_condition_is_not_taken_for_certain(code: str) -> None:
    """Contract: "refused" promises that nothing is stored; who does not know asks the fence row."""
    assert meaning_of(code) is Meaning.AGAIN


def test_without_an_answer_the_fence_row_is_asked() -> None:
    """Contract: a connection that is gone says nothing about the batch."""
    assert meaning_of(None) is Meaning.AGAIN


def test_the_fence_has_a_code_that_postgresql_does_not_use() -> None:
    """House style: the code of the fence cannot be taken for another."""
    assert re.fullmatch("[0-9A-Z]{5}", FENCED_STATE)
    assert FENCED_STATE not in KNOWN
