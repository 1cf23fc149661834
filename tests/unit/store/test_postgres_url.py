"""Addresses of PostgreSQL databases: what is taken, what is refused, and that no sentence shows a secret."""

from __future__ import annotations

import psycopg.conninfo
import pytest

from busway.store.contract import StoreError
from busway.store.postgres.url import PASSWORD_IN_ARGUMENT, is_postgres, parse


def libpq(text: str) -> dict[str, str]:
    """What libpq makes of it, but for what every address has."""
    found = psycopg.conninfo.conninfo_to_dict(parse(text).conninfo())
    always = {"application_name", "client_encoding", "connect_timeout", "tcp_user_timeout"}
    return {
        key: str(value)
        for key, value in found.items()
        if key not in always and not key.startswith("keepalives")
    }


def sentence(text: str, *, is_argument: bool = False) -> str:
    with pytest.raises(StoreError) as refused:
        parse(text, is_argument=is_argument)
    return str(refused.value)


def test_an_address_tells_place_name_and_number_of_stores() -> None:
    """Start: a database holds many stores, which have names of their own."""
    url = parse("postgresql://bus@db1:5433/bus?stores=3&name=east")
    assert (url.name, url.stores) == ("east", 3)
    assert url.store_names == ["east-0", "east-1", "east-2"]
    assert libpq("postgresql://bus@db1:5433/bus?stores=3&name=east") == {
        "user": "bus", "host": "db1", "port": "5433", "dbname": "bus",
    }  # fmt: skip


def test_what_is_left_out_has_a_default_or_is_libpqs() -> None:
    """Start: sixteen stores; libpq looks for the rest in environment and service file."""
    url = parse("postgresql:///bus")
    assert (url.name, url.stores) == ("postgres", 16)
    assert libpq("postgresql:///bus") == {"dbname": "bus"}
    assert libpq("postgresql:///?service=prod") == {"service": "prod"}
    assert libpq("postgresql://?host=/run/postgresql&dbname=bus") == {
        "host": "/run/postgresql",
        "dbname": "bus",
    }


def test_several_hosts_are_led_to_the_one_that_takes_writes() -> None:
    """Start: after a fail-over the address still finds the primary."""
    found = libpq("postgresql://db1,db2:5433/bus")
    assert (found["host"], found["port"], found["target_session_attrs"]) == ("db1,db2", ",5433", "read-write")
    assert "target_session_attrs" not in libpq("postgresql://db1/bus")
    assert libpq("postgresql://a,b/bus?target_session_attrs=primary")["target_session_attrs"] == "primary"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://bus@db1/bus?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql://bus:s%20e%27c%5Cret@db1/b%20s",
        "postgresql://[::1]:5433/bus",
        "postgresql://%2Frun%2Fpostgresql/bus",
        "postgres://u%40x@h,[fe80::1]:1/bus?connect_timeout=7",
    ],
)
def test_libpq_reads_the_same_from_the_address_and_from_what_it_is_given(text: str) -> None:
    """House style: our reading of an address and libpq's do not differ."""
    wanted = psycopg.conninfo.conninfo_to_dict(text)
    given = psycopg.conninfo.conninfo_to_dict(parse(text).conninfo())
    assert {key: given.get(key) for key in wanted} == wanted


def test_the_host_that_was_lost_is_asked_last() -> None:
    """S-1: a primary that is gone answers nobody, and the one that took over need not wait for its time-out."""

    def asked(text: str, left: tuple[str, int]) -> str:
        found = psycopg.conninfo.conninfo_to_dict(parse(text).conninfo(left))
        return f"{found['host']}:{found.get('port', '')}"

    assert asked("postgresql://db1,db2,db3/bus", ("db1", 5432)) == "db2,db3,db1:,,"
    assert asked("postgresql://db1:1,db1:2/bus", ("db1", 1)) == "db1,db1:2,1"
    assert asked("postgresql://db1,db2/bus", ("db2", 5432)) == "db1,db2:,"
    assert asked("postgresql://db1,db2/bus", ("elsewhere", 5432)) == "db1,db2:"
    assert asked("postgresql://db1:7/bus", ("db1", 7)) == "db1:7"


def test_every_connection_notices_within_seconds_that_the_other_end_is_gone() -> None:
    """Start: keepalives and a time-out of unanswered bytes on our side."""
    found = psycopg.conninfo.conninfo_to_dict(parse("postgresql://db1/bus").conninfo())
    assert found["tcp_user_timeout"] == "3000"
    assert (found["keepalives_idle"], found["keepalives_interval"], found["keepalives_count"]) == (
        "2",
        "1",
        "3",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("postgresql:", "has the form postgresql://"),
        ("postgresql://", "has the form postgresql://"),
        ("mysql://db1/bus", "has the form postgresql://"),
        ("postgresql://db1/bus?color=red", "unknown option color"),
        ("postgresql://db1/bus?options=-csynchronous_commit%3Doff", "unknown option options"),
        ("postgresql://db1/bus?tcp_user_timeout=0", "unknown option tcp_user_timeout"),
        ("postgresql://db1/bus?stores", "stores in the address of a PostgreSQL store has no value"),
        ("postgresql://db1/bus?stores=", "stores in the address of a PostgreSQL store has no value"),
        ("postgresql://db1/bus?stores=0", "between 1 and 64 stores"),
        ("postgresql://db1/bus?stores=65", "between 1 and 64 stores"),
        ("postgresql://db1/bus?stores=many", "between 1 and 64 stores"),
        ("postgresql://db1/bus?stores=²", "between 1 and 64 stores"),
        ("postgresql://db1/bus?stores=1" + "0" * 5_000, "between 1 and 64 stores"),
        ("postgresql://db1/bus?stores=2&stores=3", "gives stores twice"),
        ("postgresql://db1/bus?host=db2", "gives host twice"),
        ("postgresql://db1/bus?name=-x", "name in the address"),
        ("postgresql://db1/bus?name=a%20b", "name in the address"),
        ("postgresql://db1/bus?name=" + "x" * 41, "name in the address"),
        ("postgresql://db1:none/bus", "port in the address"),
        ("postgresql://db1:0/bus", "port in the address"),
        ("postgresql://db1:65536/bus", "port in the address"),
        ("postgresql://db1/b%FFs", "no text"),
        ("postgresql://db1/b%00s", "no text"),
    ],
)
def test_a_wrong_address_is_refused_with_a_sentence(text: str, said: str) -> None:
    """Start: wrong form, unknown option, number or name out of bounds."""
    assert said in sentence(text)
    assert sentence(text).endswith((".", "…", "16."))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://bus:Geheim@db1/bus?color=red",
        "postgresql://bus:Geheim/x@db1/bus",
        "postgresql://bus:Ge?Geheim@db1/bus",
        "postgresql://bus:Ge#Geheim?@db1/bus",
        "postgresql://bus:x/Geheim",
        "postgresql://bus:Geheim",
        "postgresql://bus:y?Geheim",
        "postgresql://bus:y?x=Geheim",
        "postgresql://bus@db1/bus?password=Geheim&color=red",
        "postgresql://bus@db1/bus?sslpassword=Geheim&stores=100",
        "mysql://bus:Geheim@db1/bus",
    ],
)
def test_no_sentence_shows_a_secret_however_it_is_written(text: str) -> None:
    """Start: also a password with marks in it that should have been written as %-sequences."""
    assert "Geheim" not in sentence(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://bus:Geheim@db1/bus",
        "postgresql://bus:@db1/bus?password=Geheim",
        "postgresql://bus@db1/bus?sslpassword=Geheim",
    ],
)
def test_a_password_is_taken_from_a_file_and_refused_in_an_argument(text: str) -> None:
    """Start: a command line can be read by everybody on the machine; the sentence names the ways that are private."""
    assert sentence(text, is_argument=True) == PASSWORD_IN_ARGUMENT
    for way in ("passfile", "service file", "PGPASSWORD", "configuration file", "--store @FILE"):
        assert way in PASSWORD_IN_ARGUMENT
    url = parse(text)
    assert "Geheim" in url.conninfo()
    assert "Geheim" not in f"{url!r} {url} {url.shown} {url.place}"


def test_what_is_shown_is_the_place_alone() -> None:
    """Start: hosts, ports and database."""
    assert parse("postgresql://u:p@db1:1,[::1]/bus?name=x").shown == "postgresql://db1:1,[::1]/bus"
    assert parse("postgresql://?host=a,b&port=7&dbname=d").shown == "postgresql://a:7,b:7/d"
    assert parse("postgresql:///?service=prod").shown == "postgresql:///prod"


def test_two_addresses_of_one_database_have_one_place() -> None:
    """Start: the same database cannot be given twice, whatever the stores are to be called."""
    assert parse("postgresql://a@h:1/d?name=x").place == parse("postgresql://b@h:1/d?name=y").place
    assert parse("postgresql://h/d").place != parse("postgresql://h/e").place
    assert parse("postgresql:///?service=a").place != parse("postgresql:///?service=b").place


def test_an_address_is_known_by_its_scheme() -> None:
    """House style: who has several kinds of stores asks here."""
    assert [is_postgres(text) for text in ("postgresql://x/y", "postgres://x", "sqlite:x", "x")] == [
        True, True, False, False,
    ]  # fmt: skip
