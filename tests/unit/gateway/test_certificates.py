"""The authority and the server certificate of a data directory."""

import os
import socket
import ssl
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from busway.clock import Entropy
from busway.gateway.certificates import are_good, ensure_certificates, server_context
from busway.gateway.tls_files import CertificateError, TlsFiles
from tests.harness.manual_clock import ManualClock

DAY_S = 86_400


def made(folder: Path, clock: ManualClock | None = None) -> TlsFiles:
    return ensure_certificates(folder, clock or ManualClock(), Entropy())


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def handshake(files: TlsFiles, name: str, authority: Path | None = None) -> str:
    """A TLS handshake in memory by a client that trusts `authority`; returns the protocol version."""
    client_context = ssl.create_default_context(cafile=str(authority or files.ca))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context(files.server, files.server_key).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.version() or ""


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_a_client_that_trusts_the_authority_reaches_the_server(tmp_path: Path, name: str) -> None:
    """A-11: under every loopback name."""
    now = ManualClock(wall_ms=_real_now_ms())
    assert handshake(made(tmp_path, now), name) == "TLSv1.3"


def test_another_name_is_not_certified(tmp_path: Path) -> None:
    """A-11: the certificate is for this machine only."""
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made(tmp_path, ManualClock(wall_ms=_real_now_ms())), "bus.example")


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    """A-11: two installations trust each other in nothing."""
    now = ManualClock(wall_ms=_real_now_ms())
    ours, theirs = made(tmp_path / "a", now), made(tmp_path / "b", now)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ours, "localhost", theirs.ca)


def test_keys_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """A-11: 0600 from the first moment, in a folder of the owner's."""
    before = os.umask(0)
    try:
        files = made(tmp_path / "tls")
    finally:
        os.umask(before)
    for key in (files.ca_key, files.server_key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert sorted(path.name for path in (tmp_path / "tls").iterdir()) == [
        "ca.key",
        "ca.pem",
        "server.key",
        "server.pem",
    ]


def test_the_authority_can_sign_no_other(tmp_path: Path) -> None:
    """A-11: path length 0, P-256, and the server's certificate is no authority."""
    files = made(tmp_path)
    authority = certificate(files.ca)
    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.value.ca, limits.value.path_length, limits.critical) == (True, 0, True)
    server = certificate(files.server)
    assert server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert socket.gethostname().lower() in names.get_values_for_type(x509.DNSName)
    for made_key in (authority.public_key(), server.public_key()):
        assert isinstance(made_key, ec.EllipticCurvePublicKey)
        assert made_key.curve.name == "secp256r1"


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    """A-11: the same files, byte for byte."""
    files = made(tmp_path)
    before = [path.read_bytes() for path in files]
    assert [path.read_bytes() for path in made(tmp_path)] == before


def test_a_certificate_near_its_end_is_renewed_by_the_same_authority(tmp_path: Path) -> None:
    """A-11: thirty days before, so that clients go on trusting."""
    clock = ManualClock()
    files = made(tmp_path, clock)
    authority, server = files.ca.read_bytes(), files.server.read_bytes()
    clock.step_wall(359 * DAY_S)
    assert made(tmp_path, clock).server.read_bytes() == server
    clock.step_wall(2 * DAY_S)
    renewed = made(tmp_path, clock)
    assert renewed.server.read_bytes() != server
    assert renewed.ca.read_bytes() == authority
    certificate(renewed.server).verify_directly_issued_by(certificate(renewed.ca))


def test_a_new_name_makes_a_new_certificate(tmp_path: Path) -> None:
    """A-11: the host it serves on is certified too."""
    made(tmp_path)
    files = ensure_certificates(tmp_path, ManualClock(), Entropy(), ["127.0.0.9", "bus.local"])
    names = certificate(files.server).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "bus.local" in names.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
def test_a_damaged_server_certificate_is_made_anew(tmp_path: Path, name: str) -> None:
    """A-11: nobody's trust hangs on it."""
    files = made(tmp_path)
    (tmp_path / name).write_text("broken")
    made(tmp_path)
    certificate(files.server).verify_directly_issued_by(certificate(files.ca))
    server_context(files.server, files.server_key)


@pytest.mark.parametrize("name", ["ca.pem", "ca.key"])
def test_a_damaged_authority_is_never_replaced_silently(tmp_path: Path, name: str) -> None:
    """A-11: every client's trust hangs on it: a sentence names the files."""
    made(tmp_path)
    (tmp_path / name).write_text("broken")
    with pytest.raises(CertificateError, match=r"ca\.pem and .*ca\.key is damaged or incomplete"):
        made(tmp_path)


def test_an_authority_near_its_end_says_so(tmp_path: Path) -> None:
    """A-11: ten years later."""
    clock = ManualClock()
    made(tmp_path, clock)
    clock.step_wall(3630 * DAY_S)
    with pytest.raises(CertificateError, match="ends on 2033"):
        made(tmp_path, clock)


def test_a_crash_between_two_files_heals(tmp_path: Path) -> None:
    """A-11: a key without a certificate was never trusted by anyone."""
    files = made(tmp_path)
    for path in (files.ca, files.server):
        path.unlink()
    made(tmp_path)
    certificate(files.server).verify_directly_issued_by(certificate(files.ca))


def test_a_link_in_the_way_does_not_get_the_key(tmp_path: Path) -> None:
    """A-11: the key is created, never written through what somebody put there."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "tls"
    folder.mkdir()
    (folder / ".ca.key.new").symlink_to(victim)
    (folder / ".server.key.new").symlink_to(victim)
    made(folder)
    assert victim.read_text() == "mine"


def test_old_tls_is_refused(tmp_path: Path) -> None:
    """A-11: TLS 1.2 or newer, no renegotiation."""
    files = made(tmp_path)
    context = server_context(files.server, files.server_key)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_a_pair_that_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    """A-11: also for files given by the user."""
    ours, theirs = made(tmp_path / "a"), made(tmp_path / "b")
    with pytest.raises(CertificateError, match="cannot be used together"):
        server_context(ours.server, theirs.server_key)
    with pytest.raises(CertificateError, match="cannot be used together"):
        server_context(tmp_path / "none.pem", tmp_path / "none.key")


# -- the quick look, by which most starts do without the library that makes certificates


def looks_good(folder: Path, *names: str, days: float = 0) -> bool:
    """So many days from now."""
    files = TlsFiles(*(folder / name for name in ("ca.pem", "ca.key", "server.pem", "server.key")))
    return are_good(files, names, datetime.now(UTC) + timedelta(days=days))


def made_today(folder: Path) -> TlsFiles:
    return made(folder, ManualClock(wall_ms=_real_now_ms()))


def test_what_was_made_looks_good_until_thirty_days_before_its_end(tmp_path: Path) -> None:
    """A-11: the quick look finds the same end as the close one."""
    made_today(tmp_path)
    assert looks_good(tmp_path, "localhost", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1", days=359.9)
    assert not looks_good(tmp_path, "localhost", days=360.1)


@pytest.mark.parametrize("name", ["bus.local", "127.0.0.9", "::2", ""])
def test_a_name_that_is_not_certified_does_not_look_good(tmp_path: Path, name: str) -> None:
    """A-11: a server on another host gets another certificate."""
    made_today(tmp_path)
    assert not looks_good(tmp_path, "localhost", name)


@pytest.mark.parametrize(
    "change", [Path.unlink, lambda path: path.write_text("broken")], ids=["gone", "broken"]
)
@pytest.mark.parametrize("name", ["ca.pem", "ca.key", "server.pem", "server.key"])
def test_a_file_that_is_gone_or_broken_does_not_look_good(
    tmp_path: Path, name: str, change: Callable[[Path], object]
) -> None:
    """A-11: each of the four is looked at."""
    made_today(tmp_path)
    assert looks_good(tmp_path, "localhost")
    change(tmp_path / name)
    assert not looks_good(tmp_path, "localhost")


@pytest.mark.parametrize(
    "strangers",
    [("ca.pem",), ("ca.key",), ("server.key",), ("ca.pem", "ca.key"), ("server.pem", "server.key")],
)
def test_files_of_another_installation_do_not_look_good(tmp_path: Path, strangers: tuple[str, ...]) -> None:
    """A-11: a key belongs to its certificate, and a certificate to its authority, which it must have signed."""
    made_today(tmp_path / "ours")
    made_today(tmp_path / "theirs")
    for name in strangers:
        (tmp_path / "ours" / name).write_bytes((tmp_path / "theirs" / name).read_bytes())
    assert not looks_good(tmp_path / "ours", "localhost")


def test_a_key_of_another_kind_does_not_look_good(tmp_path: Path) -> None:
    """A-11: the authority could not sign with it when it has to; the close look says so at once."""
    files = made_today(tmp_path)
    key = rsa.generate_private_key(65_537, 2_048)
    kinds = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files.ca_key.write_bytes(key.private_bytes(*kinds))
    assert not looks_good(tmp_path, "localhost")
    with pytest.raises(CertificateError, match="damaged or incomplete"):
        made_today(tmp_path)


def test_two_authorities_in_one_file_do_not_look_good(tmp_path: Path) -> None:
    """A-11: it is not certain which one clients trust."""
    ours, theirs = made_today(tmp_path / "ours"), made_today(tmp_path / "theirs")
    ours.ca.write_bytes(ours.ca.read_bytes() + theirs.ca.read_bytes())
    assert not looks_good(tmp_path / "ours", "localhost")


def _real_now_ms() -> int:
    """OpenSSL judges validity by the machine's clock."""
    from busway.clock import Clock

    return Clock().wall_ms()
