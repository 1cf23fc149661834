"""TLS to the database: libpq's options work as they stand in an address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.clock import Clock, Entropy
from busway.gateway.certificates import ensure_certificates
from busway.store.contract import StoreError
from busway.store.postgres.server_checks import check, connect
from busway.store.postgres.url import parse
from tests.harness.postgres_server import ROLE, PostgresServer


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, Path]]:
    """A server that takes TLS alone, and the authority of its certificate, which names localhost and 127.0.0.1."""
    files = ensure_certificates(
        tmp_path_factory.mktemp("tls"), Clock(), Entropy(), ["localhost", "127.0.0.1"]
    )
    with PostgresServer() as server:
        server.give_file("server.crt", files.server.read_bytes())
        server.give_file("server.key", files.server_key.read_bytes())
        server.set("ssl", "on")
        server.allow(f"hostssl all {ROLE} all trust")
        yield server, files.ca


def is_encrypted(url: str) -> bool:
    parsed = parse(url)
    with connect(parsed) as connection:
        check(connection, parsed)
        row = connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
    return row == (True,)


def refusal(url: str) -> str:
    with pytest.raises(StoreError) as refused:
        connect(parse(url))
    return str(refused.value)


def test_verify_full_is_content_with_the_right_authority_and_name(
    secured: tuple[PostgresServer, Path],
) -> None:
    """Start: the certificate is signed by the authority that the address names, for the host that it names."""
    server, authority = secured
    assert is_encrypted(f"{server.url()}?sslmode=verify-full&sslrootcert={authority}")


def test_verify_full_refuses_another_authority(secured: tuple[PostgresServer, Path], tmp_path: Path) -> None:
    """Start: one sentence, nothing is sent."""
    server, _ = secured
    other = ensure_certificates(tmp_path, Clock(), Entropy(), ["localhost"])
    said = refusal(f"{server.url()}?sslmode=verify-full&sslrootcert={other.ca}")
    assert "certificate verify failed" in said
    assert "\n" not in said


def test_verify_full_refuses_another_name(secured: tuple[PostgresServer, Path]) -> None:
    """Start: the right authority vouches for a host that was not asked for; verify-ca does not mind."""
    server, authority = secured
    place = (
        f"postgresql://{ROLE}@db1.example:{server.port}/postgres?hostaddr=127.0.0.1&sslrootcert={authority}"
    )
    assert 'does not match host name "db1.example"' in refusal(f"{place}&sslmode=verify-full")
    assert is_encrypted(f"{place}&sslmode=verify-ca")


def test_without_tls_such_a_server_takes_nobody(secured: tuple[PostgresServer, Path]) -> None:
    """Start: sslmode=disable is libpq's, too; the sentence says where the reason stands."""
    server, _ = secured
    assert "no encryption" in refusal(f"{server.url()}?sslmode=disable")


def test_an_authority_that_is_not_there_is_named(
    secured: tuple[PostgresServer, Path], tmp_path: Path
) -> None:
    """Start: the sentence names the file."""
    server, _ = secured
    said = refusal(f"{server.url()}?sslmode=verify-full&sslrootcert={tmp_path / 'none.pem'}")
    assert "none.pem" in said
